"""The no-U-turn sampler of several chains, and the warm-up that sets its step size and metric."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

#: U(θ) = −log p(θ) + constant of each chain, (K,), with its gradient, (K, P).
Potential: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]

#: Error of the energy, in nats, above which a trajectory has diverged.
DIVERGENCE = 1000.0
#: Acceptance at which the search for a first step size stops, and its largest number of doublings or halvings.
CROSSING, HALVINGS = 0.8, 60


@dataclass(frozen=True)
class ChainState:
    """The state of the chains.

    Attributes:
        position: θ of each chain.
        potential: U(θ).
        gradient: ∇U(θ).
    """

    position: Float[Tensor, "K P"]
    potential: Float[Tensor, " K"]
    gradient: Float[Tensor, "K P"]

    @classmethod
    def at(cls, position: Float[Tensor, "K P"], potential: Potential) -> "ChainState":
        """The state at a position."""
        return cls(position, *potential(position))

    def where(self, chosen: Bool[Tensor, " K"], other: "ChainState") -> "ChainState":
        """This state for the chosen chains, and the other state for the remaining ones."""
        return ChainState(
            torch.where(chosen[:, None], self.position, other.position),
            torch.where(chosen, self.potential, other.potential),
            torch.where(chosen[:, None], self.gradient, other.gradient),
        )


@dataclass(frozen=True)
class Transition:
    """One draw of each chain.

    Attributes:
        state: State of the chains after the draw.
        acceptance: Mean of min(1, exp(−ΔH)) along the trajectory.
        divergent: True for each chain whose trajectory diverged.
        leapfrogs: Number of steps of each trajectory.
    """

    state: ChainState
    acceptance: Float[Tensor, " K"]
    divergent: Bool[Tensor, " K"]
    leapfrogs: Int[Tensor, " K"]


class NUTS:
    r"""The no-U-turn sampler: Hamiltonian dynamics with kinetic energy ½ rᵀ M⁻¹ r, run until the trajectory turns.

    The trajectory doubles forwards or backwards at random until its ends approach each other or the error of the energy
    passes :data:`DIVERGENCE`. Points are drawn with weights exp(−H), the newer half favoured; turns are looked for in
    every balanced subtree, with as many momenta in memory as there are doublings. [hoffman2014; betancourt2017;
    phan2019]

    All chains are at the same doubling and leaf, so that one call of the potential serves them all; chains that have
    stopped are computed too, and their values discarded. The longest trajectory sets the cost of a draw.

    Args:
        potential: U and its gradient.
        step_size: ε.
        inverse_mass: The diagonal of M⁻¹, in units of θ².
        generator: Generator of momenta, directions and choices.
        max_depth: Largest number of doublings.
    """

    def __init__(
        self,
        potential: Potential,
        step_size: float,
        inverse_mass: Float[Tensor, " P"],
        generator: torch.Generator,
        max_depth: int = 10,
    ) -> None:
        self.potential, self.step_size, self.inverse_mass = potential, step_size, inverse_mass
        self.generator, self.max_depth = generator, max_depth

    def draw(self, state: ChainState) -> Transition:
        """One transition of every chain. Cost: at most 2**max_depth − 1 calls of the potential."""
        tree = _Tree(self, state)
        for depth in range(self.max_depth):
            tree.double(depth)
            if not bool(tree.active.any()):
                break
        return Transition(tree.proposal, tree.accepted / tree.leapfrogs, tree.divergent, tree.leapfrogs)

    def momentum(self, state: ChainState) -> Float[Tensor, "K P"]:
        """r ~ N(0, M)."""
        noise = torch.randn(state.position.shape, generator=self.generator, dtype=state.position.dtype)
        return noise.to(state.position.device) * self.inverse_mass.rsqrt()

    def energy(self, potential: Float[Tensor, " K"], momentum: Float[Tensor, "K P"]) -> Float[Tensor, " K"]:
        """H = U + ½ rᵀ M⁻¹ r; infinite where it is not a number."""
        total = potential + 0.5 * (momentum.square() @ self.inverse_mass)
        return torch.where(total.isnan(), torch.inf, total)

    def leapfrog(
        self, state: ChainState, momentum: Float[Tensor, "K P"], step: Float[Tensor, "K 1"] | float
    ) -> tuple[ChainState, Float[Tensor, "K P"]]:
        """Half a step of the momentum, one of the position, and half a step of the momentum."""
        half = momentum - 0.5 * step * state.gradient
        new = ChainState.at(state.position + step * self.inverse_mass * half, self.potential)
        return new, half - 0.5 * step * new.gradient

    def turning(
        self, one: Float[Tensor, "*D K P"], other: Float[Tensor, "K P"], total: Float[Tensor, "*D K P"]
    ) -> Bool[Tensor, "*D K"]:
        """Return True if a subtrajectory turns: vᵀ(Σr − (r₁ + r₂)/2) ≤ 0 at one of its ends."""
        between = self.inverse_mass * (total - 0.5 * (one + other))
        return ((one * between).sum(-1) <= 0) | ((other * between).sum(-1) <= 0)

    def uniform(self, state: ChainState) -> Float[Tensor, " K"]:
        """A number in [0, 1) for each chain."""
        drawn = torch.rand(len(state.position), generator=self.generator, dtype=state.position.dtype)
        return drawn.to(state.position.device)


class _Tree:
    """The trajectory of one transition, as it grows.

    Attributes:
        proposal: The present draw.
        active: Chains whose trajectory may still grow.
        divergent, leapfrogs, accepted: Statistics of the transition.
    """

    def __init__(self, nuts: NUTS, state: ChainState) -> None:
        self.nuts, self.proposal = nuts, state
        momentum = nuts.momentum(state)
        self.start = nuts.energy(state.potential, momentum)
        chains = len(state.position)
        self.log_weight = torch.zeros_like(self.start)
        self.total = momentum
        # both ends of the trajectory: (position, gradient, momentum) of each chain
        self.ends = torch.stack([state.position, state.gradient, momentum], 1).repeat(2, 1, 1, 1)
        self.chain = torch.arange(chains, device=self.start.device)
        self.active = torch.ones_like(self.start, dtype=torch.bool)
        self.divergent = torch.zeros_like(self.active)
        self.leapfrogs = torch.zeros_like(self.chain)
        self.accepted = torch.zeros_like(self.start)

    def double(self, depth: int) -> None:
        """Grow a subtree of 2**depth leaves at one end, and accept it unless it turns or diverges."""
        nuts = self.nuts
        side = (nuts.uniform(self.proposal) < 0.5).long()
        proposal, log_weight, total = self._grow(depth, side)
        taken = self.active & (nuts.uniform(self.proposal).log() < log_weight - self.log_weight)
        self.proposal = proposal.where(taken, self.proposal)
        self.log_weight = self.log_weight.logaddexp(log_weight)
        self.total = self.total + total
        backward, forward = self.ends[0, :, 2], self.ends[1, :, 2]
        self.active = self.active & ~nuts.turning(backward, forward, self.total)

    def _grow(
        self, depth: int, side: Int[Tensor, " K"]
    ) -> tuple[ChainState, Float[Tensor, " K"], Float[Tensor, "K P"]]:
        """The draw of the subtree, the log of its weight, and the sum of its momenta.

        ``active`` remains True for chains whose subtree neither turns nor diverges.
        """
        nuts, start = self.nuts, self.ends[side, self.chain]
        state, momentum = ChainState(start[:, 0], self.proposal.potential, start[:, 1]), start[:, 2]
        step = (nuts.step_size * (2 * side - 1)).to(momentum).unsqueeze(1)
        proposal, log_weight = state, torch.full_like(self.start, -torch.inf)
        total = torch.zeros_like(momentum)
        marks = momentum.new_empty(2, max(depth, 1), *momentum.shape)  # momenta and sums at the left of open subtrees
        for leaf in range(2**depth):
            state, momentum = nuts.leapfrog(state, momentum, step)
            error = nuts.energy(state.potential, momentum) - self.start
            self.leapfrogs += self.active
            self.accepted += torch.where(self.active, (-error).exp().clamp(max=1), 0)
            diverges = self.active & ~(error <= DIVERGENCE)
            self.divergent |= diverges
            self.active = self.active & ~diverges
            log_weight = log_weight.logaddexp(-error)
            proposal = state.where(nuts.uniform(state).log() < -error - log_weight, proposal)
            total = total + momentum
            first, last = subtrees(leaf)
            if leaf % 2 == 0:
                marks[:, last] = torch.stack([momentum, total])
            else:
                one, before = marks[:, first : last + 1]
                self.active = self.active & ~nuts.turning(one, momentum, total - before + one).any(0)
            if not bool(self.active.any()):
                break
        self.ends[side, self.chain] = torch.stack([state.position, state.gradient, momentum], 1)
        return proposal, log_weight, total


def subtrees(leaf: int) -> tuple[int, int]:
    """First and last index of the stored left momenta of the balanced subtrees that end with a leaf.

    No subtree ends with an even leaf; its momentum is stored at the last index.

    >>> subtrees(3), subtrees(6), subtrees(7)
    ((0, 1), (2, 2), (0, 2))
    """
    last = (leaf >> 1).bit_count()
    ended = (leaf ^ (leaf + 1)).bit_length() - 1
    return (last - ended + 1, last) if ended else (last, last)


def first_step_size(nuts: NUTS, state: ChainState) -> float:
    """The power of two times ``nuts.step_size`` at which the mean acceptance of one leapfrog step crosses 0.8."""
    momentum = nuts.momentum(state)
    start = nuts.energy(state.potential, momentum)

    def accepted(step: float) -> float:
        new, after = nuts.leapfrog(state, momentum, step)
        return float((start - nuts.energy(new.potential, after)).exp().clamp(max=1).mean())

    step = nuts.step_size
    larger = accepted(step) > CROSSING
    for _ in range(HALVINGS):
        step *= 2.0 if larger else 0.5
        if (accepted(step) > CROSSING) != larger:
            break
    return step


#: Dual averaging: shrinkage γ towards μ, offset t₀ that damps the first steps, decay κ of the weights of the average.
PULL, DAMPED, DECAY = 0.05, 10.0, 0.75
#: Draws before the first window, in the first window, and after the last one; their shares of a short warm-up.
BEFORE, WINDOW, AFTER = 75, 25, 50
SHARES = 0.15, 0.1
#: Draws below which a warm-up has no window.
LEAST = 20
#: Weight of the prior guess of the variances in draws, and its size relative to the variances at the start.
PRIOR_DRAWS, PRIOR_SHARE = 5.0, 1e-3


def windows(warmup: int) -> tuple[int, ...]:
    """The draws after which the metric is updated; draws before the first entry are not collected.

    >>> windows(1000)
    (75, 100, 150, 250, 450, 950)
    >>> windows(50), windows(10)
    ((7, 45), ())
    """
    before, after = BEFORE, AFTER
    if warmup < BEFORE + WINDOW + AFTER:
        before, after = (int(share * warmup) for share in SHARES)
    if warmup < LEAST:
        return ()
    ends, last, window = [before], warmup - after, WINDOW
    while ends[-1] < last:
        end = ends[-1] + window
        window *= 2
        ends.append(last if end + window > last else end)
    return tuple(ends)


class StepSize(nn.Module):
    r"""Dual averaging of log ε towards an acceptance. [hoffman2014, sec. 3.2; nesterov2009]

    .. math:: \log \epsilon_t = \mu - \frac{\sqrt t}{\gamma}\,\bar h_t, \qquad
              \bar h_t = \Big(1 - \frac{1}{t + t_0}\Big) \bar h_{t-1} + \frac{\alpha^* - \alpha_t}{t + t_0}

    The complete state is in buffers.

    Args:
        acceptance: α*, the target of the mean acceptance.
    """

    numbers: Tensor

    def __init__(self, acceptance: float) -> None:
        super().__init__()
        self.acceptance = acceptance
        self.register_buffer("numbers", torch.zeros(5, dtype=torch.double))  # log ε, its average, μ, h̄, t

    @property
    def now(self) -> float:
        """ε for the next draw of warm-up."""
        return exp(self.numbers[0])

    @property
    def final(self) -> float:
        """The averaged ε, for sampling."""
        return exp(self.numbers[1])

    def restart(self, step_size: float) -> None:
        """Restart from a guess; larger steps are tried first."""
        self.numbers.copy_(torch.tensor([log(step_size), log(step_size), log(10 * step_size), 0.0, 0.0]))

    def update(self, accepted: float) -> None:
        """Update with the mean acceptance of one draw."""
        _, average, mu, error, count = self.numbers.tolist()
        count += 1
        error += (self.acceptance - accepted - error) / (count + DAMPED)
        step = mu - count**0.5 / PULL * error
        weight = count**-DECAY
        self.numbers.copy_(torch.tensor([step, weight * step + (1 - weight) * average, mu, error, count]))


class Metric(nn.Module):
    r"""The diagonal of M⁻¹: variances of the weights in a window, about the mean of each chain.

    .. math:: \frac{n}{n + 5} \hat\sigma^2 + \frac{5}{n + 5} 10^{-3} \sigma_0^2

    after n draws of all chains, σ₀² the variances at the start; Welford's recursion. [stan2024]

    Args:
        start: σ₀², (P).
        chains: K.
    """

    inverse_mass: Tensor
    start: Tensor
    mean: Tensor
    squares: Tensor
    count: Tensor

    def __init__(self, start: Float[Tensor, " P"], chains: int) -> None:
        super().__init__()
        self.register_buffer("start", start)
        self.register_buffer("inverse_mass", start.clone())
        self.register_buffer("mean", start.new_zeros(chains, len(start)))
        self.register_buffer("squares", torch.zeros_like(start))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def collect(self, position: Float[Tensor, "K P"]) -> None:
        """Add one draw of each chain to the window."""
        self.count += 1
        before = position - self.mean
        self.mean += before / self.count
        self.squares += (before * (position - self.mean)).sum(0)

    def close_window(self) -> None:
        """Set the metric from the window, and open the next."""
        draws = int(self.count) * len(self.mean)
        variance = self.squares / (draws - len(self.mean))
        share = draws / (draws + PRIOR_DRAWS)
        self.inverse_mass.copy_(share * variance + (1 - share) * PRIOR_SHARE * self.start)
        for each in (self.mean, self.squares, self.count):
            each.zero_()
