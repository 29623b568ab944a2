# %% [markdown]
# # Logistic regression: mode, Laplace approximation and exact posterior
#
# Logistic regression is the smallest interesting example of a Laplace approximation: two
# weights, two classes, no network. The posterior is two-dimensional, so the exact posterior
# can be computed on a grid and compared with the approximation.
#
# **What you learn.** With the best weights alone, the classifier is certain everywhere away
# from its boundary, however far from the data. The average over all weights that explain the
# data is not. Far from the data a Gaussian at the mode and one formula, the probit
# approximation, come closer to it here than the best weights.
#
# The model is p(y = 1 | x, w) = σ(wᵀx) with prior w ~ N(0, I/α).

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import osculate as osc
from osculate import plots

generator = torch.Generator().manual_seed(0)
centres = torch.tensor([[-1.3, -0.6], [1.3, 0.6]])
y = torch.arange(2).repeat_interleave(10)
x = centres[y] + 0.9 * torch.randn(20, 2, generator=generator)
targets = y[:, None].float()  # one output for each input: (N, 1)

# %% [markdown]
# ## The mode
#
# The loss of `osc.methods.MAP` is −log p(D, w)/N including all constants, so the mode
# belongs to the same prior as the posterior below. This page uses a second-order optimiser;
# `osc.train` works as well.

# %%
likelihood = osc.likelihoods.Bernoulli()


def mode(alpha):
    """The network at its mode under the prior precision α."""
    model = nn.Linear(2, 1, bias=False)
    method = osc.methods.MAP(model, likelihood, prior=alpha)
    optimiser = torch.optim.LBFGS(
        model.parameters(), max_iter=100, tolerance_grad=1e-9, line_search_fn="strong_wolfe"
    )

    def loss():
        optimiser.zero_grad()
        value = method.loss(x, targets, num_data=len(x))
        value.backward()
        return value

    optimiser.step(loss)
    return model


alpha = 0.3
model = mode(alpha)
print("weights at the mode:", model.weight.data.squeeze())

# %% [markdown]
# ## The posterior: Laplace approximation and exact grid
#
# The Gaussian has precision Σₙ pₙ(1 − pₙ) xₙxₙᵀ + αI. The exact posterior is the joint
# density on a fine grid of weights, divided by its sum; the sum times the area of a cell is
# the evidence p(D).

# %%
q = osc.laplace(model, likelihood, (x, targets), structure="full", prior=alpha, refine=False)

side = torch.linspace(-8, 16, 241)
w = torch.cartesian_prod(side, side)  # every pair of weights, (G², 2)


def joint(alpha):
    """log p(D, w) for every pair of weights."""
    prior = torch.distributions.Normal(0.0, alpha**-0.5)
    return nn.functional.logsigmoid((2.0 * y - 1) * (w @ x.T)).sum(1) + prior.log_prob(w).sum(1)


log_joint = joint(alpha)
log_evidence = log_joint.logsumexp(0) + 2 * (side[1] - side[0]).log()
exact = log_joint.softmax(0)  # the probability of each cell
mean = exact @ w

print(f"log evidence       exact {log_evidence:.3f}   Laplace {osc.log_evidence(q):.3f}")
for name, found, ours in (
    ("mean of weights", mean, q.mean),
    ("sd of weights  ", (exact @ (w - mean).square()).sqrt(), q.variance().sqrt()),
):
    print(
        f"{name}    exact {found[0]:.2f}, {found[1]:.2f}   Laplace {ours[0]:.2f}, {ours[1]:.2f}"
    )

# %% Contours of the exact posterior of two weights beside those of its Laplace approximation
figure, axes = plt.subplots(
    1, 2, figsize=(9, 3.6), sharex=True, sharey=True, layout="constrained"
)
shown = {
    "exact posterior": log_joint - log_joint.max(),
    "Laplace": q.log_prob(w) - q.log_prob(q.mean),
}
for ax, (name, values) in zip(axes, shown.items(), strict=True):
    ax.contourf(
        side, side, values.reshape(241, 241).T, levels=[-8, -4.5, -2, -0.5, 0], cmap="Blues"
    )
    ax.plot(*q.mean, "x", color="black")
    ax.set(title=name, xlabel="weight 1", xlim=(-2, 8), ylim=(-3, 7))
axes[0].set_ylabel("weight 2")
figure.suptitle(
    "Posterior of the weights; steps at 0.5, 2, 4.5 and 8 nats below the top, × the mode"
)
plt.show()

# %% [markdown]
# The exact posterior is skewed towards larger weights: the two classes hardly overlap, and
# only the prior penalises large weights. The Gaussian is symmetric by construction, and is
# centred at the mode instead of the mean.
#
# ## Predictions
#
# A prediction is an integral over the weights. Here are three approximations: the mode
# alone, `link="probit"` (σ(m / √(1 + πv/8)), with m and v the mean and variance of wᵀx), and
# the sum over the grid.

# %% Probability of a class by the mode, by Laplace's method and by quadrature
line = torch.linspace(-8, 8, 65)
plane = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1).reshape(-1, 2)


def quadrature(log_joint):
    """The exact probability of the second class at each point of the plane."""
    exact = log_joint.softmax(0)
    heavy = exact > 1e-5 * exact.max()  # cells with negligible probability
    return torch.sigmoid(plane @ w[heavy].T) @ exact[heavy]


maps = {
    "mode alone (MAP)": torch.sigmoid(model(plane).detach().squeeze()),
    "Laplace, probit": osc.predict(q, plane, link="probit").probs.squeeze(),
    "exact, by quadrature": quadrature(log_joint),
}
plots.probability_maps(
    {name: p.reshape(65, 65).numpy() for name, p in maps.items()},
    (line.numpy(), line.numpy()),
    x.numpy(),
    y.numpy(),
)

# %%
truth = maps["exact, by quadrature"]
far = plane.norm(dim=1) > 7.5
for name, p in maps.items():
    error, sure = (p - truth).abs(), torch.maximum(p, 1 - p)[far] > 0.99
    print(f"{name:22} error: largest {error.max():.3f}, mean {error.mean():.3f}", end="")
    print(f"   confidence above 0.99 far away: {100 * sure.double().mean():.0f} %")

# %% [markdown]
# ## Limits of the approximation
#
# The weaker the prior, the less symmetric the posterior: only the prior bounds the weights
# of two separable classes. The same two errors against the exact predictive, over the plane
# above, for other α:

# %%
print("     α   mode: largest, mean   Laplace: largest, mean   error of the log evidence")
for other in (0.01, 0.1, 0.3, 1.0, 3.0):
    net, log_p = mode(other), joint(other)
    posterior = osc.laplace(
        net, likelihood, (x, targets), structure="full", prior=other, refine=False
    )
    truth = quadrature(log_p)
    plain = (torch.sigmoid(net(plane).detach().squeeze()) - truth).abs()
    ours = (osc.predict(posterior, plane, link="probit").probs.squeeze() - truth).abs()
    gap = osc.log_evidence(posterior) - log_p.logsumexp(0) - 2 * (side[1] - side[0]).log()
    errors = (
        f"{plain.max():.3f}, {plain.mean():.3f}         {ours.max():.3f}, {ours.mean():.3f}"
    )
    print(f"{other:6}   {errors}            {gap:+.3f} nats")

# %% [markdown]
# ## Findings and limitations
#
# * Far from the data the mode alone is certain in almost every direction, although twenty
#   data points do not determine the direction of the boundary. The boundaries of the Laplace
#   and the exact predictive fan out.
# * Where the posterior is nearly symmetric, the Laplace evidence is within a few hundredths
#   of a nat of the exact one: good enough to choose α with (`prior="evidence"`).
# * With a weak prior the Gaussian is underconfident, since the exact posterior has larger
#   weights than the mode. Its largest error stays far below that of the mode; the advantage
#   in the mean error shrinks, and reverses at α = 0.01, as on the separable data of
#   `linlap-logistic`.
# * In two dimensions a grid is cheap. Its cost grows as Gᴾ with the number P of weights. The
#   Laplace approximation costs P³ with `structure="full"`, and about P with `"diag"`.
