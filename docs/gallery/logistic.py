# %% [markdown]
# # Logistic regression: the mode, Laplace, and the exact answer
#
# The smallest model in which a Laplace approximation does something: two weights, two classes,
# no network. The posterior is two-dimensional, so that the exact answer can be had on a grid
# and the approximation be held against it.
#
# **What one learns.** The classifier at the best weights is certain everywhere away from its
# boundary, however far from the data. Averaging over all weights that explain the data is not.
# A Gaussian at the mode and one formula, the probit approximation, give nearly that average.
#
# The model is p(y = 1 | x, w) = σ(wᵀx) with the prior w ~ N(0, I/α).

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
# The loss of `osc.methods.MAP` is −log p(D, w)/N with every constant in it, so that the mode
# belongs to the same prior as the posterior below. Here a second-order optimiser minimises it;
# `osc.train` would do as well.

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
# ## The posterior: a Gaussian at the mode, and the truth on a grid
#
# The precision of the Gaussian is Σₙ pₙ(1 − pₙ) xₙxₙᵀ + αI. The exact posterior is the joint
# density on a fine grid of weights, divided by its sum; that sum is the evidence p(D).

# %%
q = osc.laplace(model, likelihood, (x, targets), structure="full", prior=alpha)

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

# %%
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
# The truth leans towards larger weights: the two classes hardly overlap, and weights that are
# too large are punished by the prior only. The Gaussian is symmetric by construction, and its
# centre is the mode instead of the mean.
#
# ## Predictions
#
# A prediction is an integral over the weights. Three ways to it: the mode alone,
# `link="probit"` (σ(m / √(1 + πv/8)) with m and v the mean and variance of wᵀx), and the sum
# over the grid.

# %%
line = torch.linspace(-8, 8, 65)
plane = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1).reshape(-1, 2)


def quadrature(log_joint):
    """The exact probability of the second class at each point of the plane."""
    exact = log_joint.softmax(0)
    heavy = exact > 1e-5 * exact.max()  # cells without weight change nothing
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
    print(f"   surer than 0.99 far away: {100 * sure.double().mean():.0f} %")

# %% [markdown]
# ## Where the approximation ends
#
# The weaker the prior, the less symmetric the posterior: nothing but the prior keeps the
# weights of two separable classes from growing. The same two errors against the exact answer,
# over the plane above, for other α:

# %%
print("     α   mode: largest, mean   Laplace: largest, mean   error of the log evidence")
for other in (0.01, 0.1, 0.3, 1.0, 3.0):
    net, log_p = mode(other), joint(other)
    posterior = osc.laplace(net, likelihood, (x, targets), structure="full", prior=other)
    truth = quadrature(log_p)
    plain = (torch.sigmoid(net(plane).detach().squeeze()) - truth).abs()
    ours = (osc.predict(posterior, plane, link="probit").probs.squeeze() - truth).abs()
    gap = osc.log_evidence(posterior) - log_p.logsumexp(0) - 2 * (side[1] - side[0]).log()
    errors = (
        f"{plain.max():.3f}, {plain.mean():.3f}         {ours.max():.3f}, {ours.mean():.3f}"
    )
    print(f"{other:6}   {errors}            {gap:+.3f} nats")

# %% [markdown]
# ## What holds, and what does not
#
# * Far from the data the mode alone is certain in almost every direction, although twenty
#   points cannot tell which way the boundary runs. Laplace and the exact answer open up like a
#   fan.
# * The evidence of the Gaussian is within a few hundredths of a nat of the exact one where the
#   posterior is about symmetric. That makes it good enough to choose α with
#   (`prior="evidence"`).
# * With a weak prior the Gaussian is less sure than the truth, whose weights are larger than
#   those at the mode. Its largest error stays far below that of the mode; the advantage in the
#   mean error shrinks, and may vanish.
# * In two dimensions a grid is cheap. Its cost grows as Gᴾ with the number P of weights, that
#   of the Laplace approximation as P³ with `structure="full"`, and about as P with `"diag"`.
