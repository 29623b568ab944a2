# %% [markdown]
# # Precisions from samples
#
# The evidence needs γ, the number of parameters that the data determine, and γ needs posterior
# variances. Where no matrix can be written down, samples will do: each is the solution of a
# least-squares problem with random targets, found by products with the data alone.
#
# **What one learns.** That a few dozen samples give the precision of the exact computation to a
# few percent; how the number of samples and the rank of the sketch enter; and two solvers for
# the systems behind each sample.
#
# ## Exact, and from samples

# %%
import time

import matplotlib.pyplot as plt
import torch
from torch import nn

import osculate as osc

torch.manual_seed(0)
likelihood = osc.likelihoods.Categorical()
x = torch.randn(300, 6)
y = (x[:, :3] + 0.5 * torch.randn(300, 3)).argmax(1)
net = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 3))
osc.train(osc.methods.MAP(net, likelihood, 1.0), (x, y), epochs=30, lr=1e-2, progress=False)

full = osc.laplace(net, likelihood, (x, y), structure="full", prior=1.0)
exact = osc.maximise_evidence(full, mode="linear", data=(x, y), tolerance=1e-4)
gamma = sum(osc.evidence.effective_parameters(exact).values())
print(
    f"exact: precision {float(exact.prior.precision):.3f}, γ = {gamma:.1f} of {len(exact.mean)}"
)

matrix_free = osc.structures.MatrixFree(rank=20)
start = osc.laplace(net, likelihood, (x, y), structure=matrix_free, prior=1.0)
counts, errors = (2, 4, 8, 16, 32), []
for samples in counts:
    error = []
    for seed in range(3):
        began = time.process_time()
        q = osc.evidence.expectation_maximisation(
            start,
            samples=samples,
            tolerance=1e-3,
            generator=torch.Generator().manual_seed(seed),
        )
        error.append(abs(float(q.prior.precision / exact.prior.precision) - 1))
    errors.append(error)
    print(
        f"{samples:3} samples: off by {100 * sum(error) / 3:.1f} %"
        f"   ({time.process_time() - began:.1f} CPU seconds)"
    )

# %%
figure, axes = plt.subplots(figsize=(5, 3.2))
axes.plot(counts, [[100 * e for e in error] for error in errors], "o", color="tab:blue")
axes.set(xscale="log", xlabel="samples", ylabel="error of the precision, %")
axes.set_xticks(counts, counts)
axes.minorticks_off()
axes.set_title("Three draws each, sketch of rank 20", fontsize=10)
figure.tight_layout()

# %% [markdown]
# The random numbers are drawn once, so that the rounds end at one fixed point; what is left is
# the error of the samples. `osc.maximise_evidence(q, mode="em")` takes 64 of them.
#
# ## What the posterior then predicts

# %%
new = 2 * torch.randn(5, 6)
ours = osc.functional_variance(q, new, diagonal=True)
truth = osc.functional_variance(exact, new, diagonal=True)
print("variances of the outputs, from products alone over exact:")
print((ours / truth).round(decimals=3))

# %% [markdown]
# They are off together, by what the precision is.
#
# ## What holds, and what does not
#
# * Precisions come out within some percent of the exact ones. With several groups of parameters
#   each has its own error, and groups of few determined parameters the largest.
# * The sketch that preconditions the solves also corrects γ: with a rank near γ it does most of
#   the work, and few samples are enough.
# * On a network as small as this one `structure="full"` is faster. Products with the data pay
#   where matrices of all parameters or of all outputs do not fit.
# * `osc.structures.MatrixFree(solver="sdd")` replaces conjugate gradients by stochastic dual
#   descent, which looks at some data at a time. It takes many passes on badly conditioned
#   problems, and says so where it has not converged.
