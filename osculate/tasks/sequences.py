"""The uncertainty of sequences of tokens: of each token, and of all tokens of a sequence together."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from osculate.batches import require_inputs
from osculate.checks import require_whole
from osculate.inputs import Inputs, count, take
from osculate.likelihoods import Categorical
from osculate.memory import even_parts
from osculate.posteriors import as_posterior
from osculate.predictive import sample_functions
from osculate.progress import track

#: Numbers of all draws that are processed at once.
AT_ONCE = 2**22
#: Labels that are drawn for each draw of the function.
LABELS = 16


@dataclass(frozen=True, eq=False)
class SequenceUncertainty:
    """The result of :func:`sequence_uncertainty`, in nats; positions that are not counted are NaN.

    Args:
        entropy: H[y_t|x], the entropy of the predictive of each token.
        expected_entropy: E_f H[y_t|f], its aleatoric part.
        mutual_information: I[y_t; f|x], its epistemic part.
        joint: I[y_1 … y_T; f|x], the information of all tokens of a sequence together; at most log S.
        joint_error: Standard error of ``joint`` over the draws.
    """

    entropy: Float[Tensor, "N T"]
    expected_entropy: Float[Tensor, "N T"]
    mutual_information: Float[Tensor, "N T"]
    joint: Float[Tensor, " N"]
    joint_error: Float[Tensor, " N"]

    def metrics(self) -> dict[str, float]:
        """The means over all tokens that are counted, and that of ``joint`` over sequences."""
        parts = {name: getattr(self, name) for name in ("entropy", "expected_entropy", "mutual_information")}
        return {name: float(part.nanmean()) for name, part in parts.items()} | {"joint": float(self.joint.mean())}


def sequence_uncertainty(
    q: Any,
    x: Inputs,
    counted: Bool[Tensor, "N T"] | None = None,
    *,
    samples: int = 64,
    batch_size: int = 1,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> SequenceUncertainty:
    r"""The uncertainty of each token of sequences, and what all tokens of a sequence together say about the function.

    .. math:: I[y_t; f \mid x] = H[y_t \mid x] - E_f H[y_t \mid f], \qquad
              I[y_1 \dots y_T; f \mid x] = E_f E_{y \mid f} \Big[\sum_t \log p(y_t \mid f_t)
              - \log E_{f'} \prod_t p(y_t \mid f'_t)\Big]

    Tokens are independent given f and the inputs, which hold the earlier tokens. The joint information is at most the
    sum of those of the tokens, which may all tell the same. With S draws it is at most log S: where it comes near, it
    is a lower bound, and more draws raise it. [houlsby2011]

    Args:
        q: A posterior with a Categorical likelihood that is not a point, or what ``osc.train`` returned.
        x: Inputs of N sequences; outputs are (N, T, V), or (N, V) for one token.
        counted: True at the positions that count, such as those that are no padding; None for all.
        samples: S, draws of the function, the same for all tokens of a sequence.
        batch_size: Sequences at a time.
        generator: Source of random numbers.
        progress: Show a progress bar.

    Raises:
        ValueError: another likelihood, a mask of another shape, no inputs, fewer than two draws, or draws that do not
            fit into the free memory.
        TypeError: a point, which has a single function.

    Cost: S function draws (:func:`osculate.sample_functions`), and S × T × V numbers for each sequence of a batch; no
    V × V matrix.

    >>> import osculate as osc
    >>> X, Y = torch.randint(9, (6, 5)), torch.randint(9, (6, 5))
    >>> model = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9))
    >>> q = osc.laplace(model, osc.likelihoods.Categorical(), (X, Y), prior=1.0)
    >>> found = osc.tasks.sequence_uncertainty(q, X)
    >>> found.mutual_information.shape, bool((found.joint <= found.mutual_information.sum(1) + 0.3).all())
    (torch.Size([6, 5]), True)
    """
    likelihood = as_posterior(q).likelihood
    if not isinstance(likelihood, Categorical):
        raise ValueError(
            f"tokens are classes, and the likelihood is {type(likelihood).__name__}: fit with Categorical(), or take "
            "osc.functional_variance for the uncertainty of numbers."
        )
    require_inputs(x)
    require_whole("samples", samples, 2)
    require_whole("batch_size", batch_size)
    size, found = count(x), []
    parts = even_parts(size, batch_size)
    for part in track(parts, "uncertainty of sequences", len(parts), progress):
        with torch.no_grad():
            draws = sample_functions(q, take(x, part), samples, generator=generator)
            for row in range(draws.shape[1]):
                f = likelihood.split(draws[:, row])
                if counted is not None and counted.shape != (size, f.shape[1]):
                    raise ValueError(
                        f"counted has shape {tuple(counted.shape)}, and there are {size} sequences of {f.shape[1]} "
                        "tokens: give one value for each token."
                    )
                found.append(_information(f, None if counted is None else counted[part.start + row], generator))
            del draws
    return SequenceUncertainty(*(torch.stack(each).cpu() for each in zip(*found, strict=True)))


def _information(
    f: Float[Tensor, "S T V"], counted: Bool[Tensor, " T"] | None, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The parts of a :class:`SequenceUncertainty` for one sequence, a few tokens at a time."""
    draws, tokens, classes = f.shape
    kept = torch.ones(tokens, dtype=torch.bool) if counted is None else counted.cpu()
    by_draw = f.new_zeros(draws, draws, LABELS, dtype=torch.double)  # log p of labels of draw j under draw i
    entropies = f.new_full((2, tokens), torch.nan)
    for part in kept.nonzero().squeeze(-1).split(max(1, AT_ONCE // (draws * classes))):
        logs = f[:, part].log_softmax(-1)
        probs, mean = logs.exp(), logs.logsumexp(0) - math.log(draws)
        entropies[0, part] = torch.special.entr(mean.exp()).sum(-1)
        entropies[1, part] = torch.special.entr(probs).sum(-1).mean(0)
        on = f.device if generator is None else generator.device
        y = torch.multinomial(probs.flatten(0, 1).to(on), LABELS, replacement=True, generator=generator)
        y = y.to(f.device).reshape(draws, len(part), LABELS).transpose(0, 1).reshape(len(part), 1, -1)
        each = logs.transpose(0, 1).gather(2, y.expand(-1, draws, -1))
        by_draw += each.double().sum(0).reshape(by_draw.shape)
    own = by_draw.diagonal().mT
    gain = (own - by_draw.logsumexp(0) + math.log(draws)).mean(1)
    total, expected = entropies
    return total, expected, (total - expected).clamp(min=0), gain.mean(), gain.std() / math.sqrt(draws)
