"""Annealed importance sampling of codes, forward from a tractable distribution and backward from an exact draw."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

from osculate.autoencoders.autoencoder import VAE
from osculate.autoencoders.codes import CodePrior, GaussianCodes, ImplicitCodes, SigmoidCodes, SparseBeta, drawn_by
from osculate.checks import require_whole
from osculate.likelihoods import Likelihood
from osculate.memory import budget, even_parts
from osculate.parameters import Network
from osculate.randomness import drawn_on
from osculate.registry import choose

#: β as a function of t in [0, 1], before its ends are moved to 0 and 1.
SPACINGS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": lambda t: torch.sigmoid(8 * t - 4),
    "linear": lambda t: t,
}
STARTS = ("prior", "posterior")
#: Pilot chains of each datum, their initial step size, and the fewest transitions that tune it first and in all.
PILOTS, FIRST_STEP, SEARCH, FEWEST = 4, 0.1, 50, 100
#: Growth of the log step size per unit of acceptance above the target.
RATE = 0.2
#: Bytes of images that each thread decodes at once, such that they stay in its cache.
CACHED = 2**19
#: Copies of the images held at once: outputs, and temporaries of their density.
PEAK = 8


class LogJoint:
    """q(z|x), p(z) and p(y|z) under one network, the terms of bounds on log p(y).

    Args:
        network: Network of the posterior, or one drawn from it.
        model: Autoencoder with the distributions of codes.
        likelihood: p(y|z).
        memory: Memory for the images of a pass; by default the cache of a CPU, and :func:`osculate.memory.budget` on
            other devices.
    """

    def __init__(
        self, network: Callable[[Any], Tensor], model: VAE, likelihood: Likelihood, memory: str | int | None = None
    ) -> None:
        self.network, self.likelihood, self._memory = network, likelihood, memory
        member = (
            network.module if isinstance(network, Network) else model
        )  # members of an ensemble have different distributions of codes
        assert isinstance(member, VAE)
        self.posterior, self.prior = member.posterior, member.prior

    def encoded(self, x: Float[Tensor, "N *D"]) -> Float[Tensor, "N R"]:
        """The outputs of the encoder, the parameters of q(z|x)."""
        return torch.cat([self.network({"encode": x[part]}) for part in even_parts(len(x), self._rows(x))])

    def require_targets(self, y: Tensor, like: Float[Tensor, "1 K"]) -> None:
        """Raise the error of the likelihood if targets do not fit the images of codes of the shape of ``like``."""
        for part in even_parts(len(y), self._rows(y)):
            self.likelihood.check(self.network({"decode": like.expand(len(y[part]), -1)}), y[part])

    def log_prob(self, z: Float[Tensor, "S N K"], y: Tensor) -> Float[Tensor, "S N"]:
        """log p(y_n|z_sn), in double precision."""
        found = torch.empty(z.shape[:2], dtype=torch.double, device=z.device)
        for s, n in self.parts(z, y):
            found[s, n] = self.each(z[s, n], y[n]).double()
        return found

    def each(self, z: Float[Tensor, "S N K"], y: Tensor) -> Float[Tensor, "S N"]:
        """log p(y_n|z_sn) in a single differentiable pass."""
        f = self.network({"decode": z.flatten(0, 1)})
        return self.likelihood.log_prob(f, y.expand(len(z), *y.shape).flatten(0, 1)).unflatten(0, z.shape[:2])

    def parts(self, z: Float[Tensor, "S N K"], y: Tensor) -> Iterator[tuple[slice, slice]]:
        """Yield slices of draws and data that may be decoded at once."""
        rows = self._rows(y)
        for n in even_parts(z.shape[1], rows):
            for s in even_parts(len(z), rows // (n.stop - n.start)):
                yield s, n

    def _rows(self, y: Tensor) -> int:
        """The number of images that may be decoded at once."""
        size, device = max(1, y[0].numel()) * y.element_size(), y.device
        if self._memory is None and device.type == "cpu":
            return max(1, torch.get_num_threads() * CACHED // size)
        return max(1, budget(self._memory, device) // (PEAK * size))


@dataclass(frozen=True)
class Annealing:
    """Settings of the chains from r(z) to p(z|x) by Hamiltonian Monte Carlo.

    Args:
        temperatures: T; more of them give a tighter bound.
        leapfrogs: Leapfrog steps of a transition.
        start: r(z), the "prior" p(z) or the "posterior" q(z|x). The posterior of a good encoder is close to p(z|x); an
            overconfident one has light tails, which need many temperatures.
        spacing: "sigmoid", finer at both ends, or "linear".
        acceptance: Target acceptance rate, to which the step size of each datum and temperature is tuned.

    Raises:
        ValueError: an unknown name, fewer than one temperature or step, or an acceptance outside (0, 1).

    >>> Annealing(temperatures=4, spacing="linear").path()
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000], dtype=torch.float64)
    """

    temperatures: int = 500
    leapfrogs: int = 10
    start: str = "prior"
    spacing: str = "sigmoid"
    acceptance: float = 0.65

    def __post_init__(self) -> None:
        require_whole("temperatures", self.temperatures)
        require_whole("leapfrogs", self.leapfrogs)
        choose("start of the annealing", self.start, STARTS)
        choose("spacing of temperatures", self.spacing, SPACINGS)
        if not 0 < self.acceptance < 1:
            raise ValueError(f"acceptance is a target acceptance rate between 0 and 1, got {self.acceptance!r}.")

    def path(self) -> Float[Tensor, " T1"]:
        """β_0 = 0, …, β_T = 1."""
        beta = SPACINGS[self.spacing](torch.linspace(0, 1, self.temperatures + 1, dtype=torch.double))
        return (beta - beta[0]) / (beta[-1] - beta[0])


class AnnealedState(NamedTuple):
    """The positions of the chains, with densities and gradients.

    Attributes:
        position: u of each chain of each datum.
        start: Log r(u).
        gain: Log p(y, u) − log r(u).
        gradients: The gradients of ``start`` and ``gain``.
    """

    position: Float[Tensor, "C N K"]
    start: Float[Tensor, "C N"]
    gain: Float[Tensor, "C N"]
    gradients: Float[Tensor, "2 C N K"]

    def log_density(self, beta: float) -> Float[Tensor, "C N"]:
        """log f_β(u)."""
        return self.start + beta * self.gain

    def gradient(self, beta: float) -> Float[Tensor, "C N K"]:
        """The gradient of log f_β(u)."""
        return self.gradients[0] + beta * self.gradients[1]

    def where(self, chosen: Tensor, other: "AnnealedState") -> "AnnealedState":
        """Return this state for the chosen chains and the other one for the rest."""
        wide = chosen.unsqueeze(-1)
        pairs = zip(self, other, strict=True)
        return AnnealedState(*(torch.where(chosen if own.ndim == 2 else wide, own, rest) for own, rest in pairs))


class Annealed:
    r"""Chains of codes for some data, along f_β(u) = r(u)^{1−β} p(y, u)^β. [neal2001, wu2017]

    .. math:: \log w = \sum_{t=1}^T (\beta_t - \beta_{t-1}) \log \frac{p(y, u_{t-1})}{r(u_{t-1})}, \qquad
              \operatorname{E} w = p(y)

    where u_t follows from u_{t−1} by a transition that leaves f_{β_t} invariant. Its step sizes are tuned by pilot
    chains and fixed before the chains that are returned start, so that w is unbiased. Codes between 0 and 1 are
    sampled as logits.

    Args:
        joint: q(z|x), p(z) and p(y|z).
        h: Outputs of the encoder, the parameters of q(z|x), (N, R).
        y: Targets.
        settings: Temperatures and transitions.
        generator: Source of random numbers.

    Raises:
        ValueError: ``start="posterior"`` with codes of unknown density, or with another support than the prior.

    Cost: T L forward and backward passes of the decoder per chain, with L leapfrog steps; the pilot chains cost as much
    as :data:`PILOTS` more.
    """

    def __init__(
        self,
        joint: LogJoint,
        h: Float[Tensor, "N R"],
        y: Tensor,
        settings: Annealing,
        generator: torch.Generator | None = None,
    ) -> None:
        self._joint, self._h, self._y = joint, h, y
        self._settings, self._generator = settings, generator
        self._logits = isinstance(joint.prior, SparseBeta)
        if settings.start == "posterior":
            q, p = joint.posterior, joint.prior
            if isinstance(q, ImplicitCodes):
                raise ValueError(f"{type(q).__name__} have no density to start from: pass start='prior'.")
            if isinstance(q, SigmoidCodes) and not self._logits:
                raise ValueError(f"{type(q).__name__} do not cover the support of {p!r}: pass start='prior'.")
        self._latent = joint.posterior.latent(h.shape[1])
        self._path = settings.path().tolist()
        self._steps = self._tuned()

    def forward(self, chains: int) -> Float[Tensor, "C N"]:
        """log w of chains from r(u) to p(u|y)."""
        return self._log_weights(self._drawn(chains), 1)

    def backward(self, codes: Float[Tensor, "N K"], chains: int) -> Float[Tensor, "C N"]:
        r"""log w of chains from exact draws of p(z|y) to r(u), with E 1/w = 1/p(y). [grosse2015]

        Args:
            codes: Exact draws as u, one for each datum, from which all its chains start.
            chains: C.
        """
        return self._log_weights(codes.repeat(chains, 1, 1), -1)

    def _log_weights(self, position: Float[Tensor, "C N K"], direction: int) -> Float[Tensor, "C N"]:
        """Follow chains along the path, or with direction −1 back."""
        state = self._at(position)
        total = torch.zeros_like(state.gain)
        increments = [after - before for before, after in pairwise(self._path)][::direction]
        transitions = [*zip(self._path[1:-1], self._steps, strict=True)][::direction]
        for increment, transition in zip_longest(increments, transitions):
            total += increment * state.gain
            if transition is not None:  # none behind the last increment
                state, _ = self._transition(state, *transition)
        return total

    def _tuned(self) -> list[Float[Tensor, " N"]]:
        """Tune the step size by pilot chains, for each temperature but the first and last."""
        state = self._at(self._drawn(PILOTS))
        step = torch.full_like(state.position[0, :, 0], FIRST_STEP)
        rounds = -(-FEWEST // self._settings.temperatures)
        found = []
        for t, beta in enumerate(self._path[1:-1]):
            for _ in range(rounds if t else max(rounds, SEARCH)):
                state, accepted = self._transition(state, beta, step)
                step = step * (RATE * (accepted.mean(0) - self._settings.acceptance)).exp().to(step)
            found.append(step)
        return found

    def _transition(
        self, state: AnnealedState, beta: float, step: Float[Tensor, " N"]
    ) -> tuple[AnnealedState, Float[Tensor, "C N"]]:
        """Make a transition of Hamiltonian Monte Carlo with invariant f_β; return the state and the acceptance."""
        size = step.unsqueeze(-1)
        momentum = start = self._noise(torch.randn, state.position.shape)
        new = state
        for _ in range(self._settings.leapfrogs):
            momentum = momentum + 0.5 * size * new.gradient(beta)
            new = self._at(new.position + size * momentum)
            momentum = momentum + 0.5 * size * new.gradient(beta)
        kinetic = 0.5 * (start.square().sum(-1) - momentum.square().sum(-1))
        accepted = (new.log_density(beta) - state.log_density(beta) + kinetic).exp().clamp(max=1).nan_to_num(nan=0.0)
        return new.where(self._noise(torch.rand, accepted.shape) < accepted, state), accepted

    def _noise(self, draw: Callable[..., Tensor], shape: tuple[int, ...]) -> Tensor:
        on = drawn_on(self._h, self._generator)
        return draw(shape, generator=self._generator, dtype=self._h.dtype, device=on).to(self._h.device)

    def _at(self, position: Float[Tensor, "C N K"]) -> AnnealedState:
        """The densities and gradients at some positions."""
        logs = position.new_empty(2, *position.shape[:2], dtype=torch.double)
        state, prior = (
            AnnealedState(position, logs[0], logs[1], position.new_empty(2, *position.shape)),
            self._joint.prior,
        )
        for c, n in self._joint.parts(position, self._y):
            with torch.enable_grad():
                u = position[c, n].detach().requires_grad_()
                explained = self._joint.each(codes_at(prior, u), self._y[n])
                start = before = prior.logit_log_prob(u) if self._logits else prior.over(u).log_prob(u)
                gain = explained
                if self._settings.start == "posterior":
                    start = self._first(self._h[n]).log_prob(u)
                    gain = explained + before - start
                state.gradients[0, c, n], state.gradients[1, c, n] = (
                    torch.autograd.grad(each.sum(), u, retain_graph=True)[0] for each in (start, gain)
                )
            state.start[c, n], state.gain[c, n] = start.detach().double(), gain.detach().double()
        return state

    def _first(self, h: Float[Tensor, "n R"]) -> Distribution:
        """q(u|x)."""
        return (GaussianCodes() if self._logits else self._joint.posterior).distribution(h)

    def _drawn(self, chains: int) -> Float[Tensor, "C N K"]:
        """Draw u ~ r(u)."""
        if self._settings.start == "prior":
            like = self._h.new_empty(chains, len(self._h), self._latent)
            return prior_draws(self._joint.prior, like, self._generator)
        with drawn_by(self._generator):
            return self._first(self._h).sample((chains,))


def prior_draws(
    prior: CodePrior, like: Float[Tensor, "... K"], generator: torch.Generator | None
) -> Float[Tensor, "... K"]:
    """Draw codes from p(z) as u, of the shape, type and device of ``like``."""
    with drawn_by(generator):
        if not isinstance(prior, SparseBeta):
            return prior.over(like).sample()
        # the log ratio of two gamma variables is finite where the beta variable rounds to 0 or 1
        shape = torch.full((2, *like.shape), prior.shape, dtype=torch.double, device=like.device)
        logs = torch._standard_gamma(shape + 1).log() + torch.rand_like(shape).log() / shape
        return (logs[0] - logs[1]).to(like.dtype)


def codes_at(prior: CodePrior, u: Float[Tensor, "... K"]) -> Float[Tensor, "... K"]:
    """Return z(u); for a prior of codes between 0 and 1, u are logits."""
    return u.sigmoid() if isinstance(prior, SparseBeta) else u
