# %% [markdown]
# # Adapters: what a tuned language model knows of a text
#
# A language model gives each next token a probability. Where a text is unlike what the model
# was tuned on, the probability itself is uncertain: other adapters that explain the tuning
# text as well would give another one.
#
# **What you learn.** A posterior over LoRA adapters with the base frozen; the distribution of
# the next token with its Monte Carlo error; and `osc.tasks.sequence_uncertainty`, token by
# token and for a whole sentence.
#
# ## A small language model
#
# A transformer over characters, trained on comments and code of a few modules of Python's
# standard library.

# %%
import codecs
import contextlib
import io
import textwrap
from pathlib import Path

import torch

import osculate as osc
from experiments import read_record
from experiments.foundation.adapters import Adapted
from osculate import plots
from osculate.plots import style

with contextlib.redirect_stdout(io.StringIO()):
    import this  # it prints its poem, and holds it in ROT13

zen = codecs.decode(this.s, "rot13").split("\n\n")[1]
modules = (textwrap, contextlib)
code = "\n".join(Path(module.__file__).read_text(encoding="utf-8") for module in modules)
CONTEXT = 32
likelihood = osc.likelihoods.Categorical(ignore_index=-100)


def tokens(text):
    """The characters of a text; all that are not ASCII are one token."""
    return torch.tensor([min(ord(character), 127) for character in text])


def windows(text, step):
    """Windows of a text, and the next character at each position."""
    both = tokens(text).unfold(0, CONTEXT + 1, step)
    return both[:, :-1], both[:, 1:]


torch.manual_seed(0)
model = osc.networks.GPT(128, CONTEXT, width=64, depth=2, heads=2)
how = {"lr": 1e-2, "schedule": "one_cycle", "progress": False}
data = windows(code, CONTEXT)
osc.train(osc.methods.MAP(model, likelihood), data, epochs=4, batch_size=32, **how)
print(f"{len(code):,} characters, {sum(p.numel() for p in model.parameters()):,} parameters")

# %% [markdown]
# ## Adapters, and their posterior
#
# The base is frozen. Adapters of rank 16 on all linear layers are tuned on the Zen of Python,
# and get a posterior. One label is drawn for each character in place of a backward pass for
# each of 128 characters.

# %%
model.requires_grad_(False)
for block in model.blocks:
    block.attend, block.project = Adapted(block.attend, 16), Adapted(block.project, 16)
    block.mlp[0], block.mlp[2] = Adapted(block.mlp[0], 16), Adapted(block.mlp[2], 16)
data = windows(zen, 6)
osc.train(
    osc.methods.MAP(model, likelihood), data, epochs=30, batch_size=32, **how | {"lr": 2e-2}
)
model.eval()
q = osc.laplace(model, likelihood, data, subset="lora", curvature="fisher")
print(f"{q.mean.numel():,} parameters in the posterior")

# %% [markdown]
# ## The next character
#
# `link="functions"` averages the probabilities of drawn functions; `standard_error` says what
# more draws could change.

# %%
for prompt in ("Simple is bett", "The night trai"):
    found = osc.predict(q, tokens(prompt)[None], link="functions", samples=32)
    probs, error = found.probs[0, -1], found.standard_error[0, -1]
    first = probs.topk(3).indices
    print(prompt, *(f"{chr(n)!r} {probs[n]:.2f} ± {error[n]:.2f}" for n in first), sep="   ")

# %% [markdown]
# ## Sentences, letter by letter
#
# The mutual information of a character and the adapters: what this character would tell about
# them. It is small where all adapters that explain the poem agree.

# %% Four sentences, each letter shaded by the information it has about the adapters
sentences = {
    "a line of the poem": "Simple is better than complex.",
    "its words in other order": "Complex is better than simple.",
    "other English": "The night train leaves at nine.",
    "another language": "Der Nachtzug faehrt um neun ab.",
}
length = max(map(len, sentences.values()))
rows = torch.stack([tokens("\n" + s.ljust(length)) for s in sentences.values()])
counted = torch.stack([torch.arange(length) < len(s) for s in sentences.values()])
generator = torch.Generator().manual_seed(0)
unsure = osc.tasks.sequence_uncertainty(
    q, rows[:, :-1], counted, samples=64, generator=generator
)
figure, ((ax,),) = plots.panels(1, 1, 9.0, 2.6)
image = plots.cells(ax, unsure.mutual_information, aspect="auto")
for row, sentence in enumerate(sentences.values()):
    for place, character in enumerate(sentence):
        value = float(unsure.mutual_information[row, place])
        bright = image.norm(value) > 0.5
        ink = style.INK if bright else style.WHITE
        ax.text(place, row, character, ha="center", va="center", color=ink, family="monospace")
ax.set_yticks(range(len(sentences)), list(sentences))
ax.set_xticks([])
style.colour_bar(figure, image, ax, "nats")
style.title(figure, "What each letter would tell about the adapters")

# %%
for name, each in zip(sentences, unsure.mutual_information, strict=True):
    print(f"{name:26} {each.nanmean():.2f} nats a letter")

# %% [markdown]
# ## What it is worth
#
# The record of `python -m experiments foundation-worth --seeds 5`: a transformer trained on
# the source of Python's standard library, and adapters tuned on 32 functions of each of six
# packages to tell which package a function comes from.

# %%
results = Path(osc.__file__).parent.parent / "experiments" / "results"
record = read_record(results / "foundation-worth.json")
for column in ("NLL, nats", "ECE"):
    values = {n.row: n for n in record.findings.numbers if n.column == column}
    print(column, *(f"  {name:48}{number}" for name, number in values.items()), sep="\n")
for claim in record.findings.claims:
    print(textwrap.fill(str(claim), 84), end="\n\n")

# %% [markdown]
# ## Findings and limitations
#
# * Adapters tuned on a short text leave much open: on the poem's own lines the posterior is
#   about as certain as the network, elsewhere it is not.
# * Mutual information says where adapters differ, not where a text is wrong: a line with its
#   words in another order is nearly as familiar as the line itself.
# * The joint information of a sentence is at most log S for S draws, and many letters reach
#   that bound quickly: compare the letters, or take short spans.
# * A model this small knows neither English nor German; a large one differs in what it finds
#   familiar, not in the calls.
