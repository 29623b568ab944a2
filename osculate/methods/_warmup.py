"""What warm-up learns: a step size by dual averaging, and a diagonal metric from the draws of growing windows."""

from math import exp, log

import torch
from jaxtyping import Float
from torch import Tensor, nn

#: Dual averaging: pull towards μ, steps by which the first ones are damped, decay of the weights of the average.
PULL, DAMPED, DECAY = 0.05, 10.0, 0.75
#: Draws before the first window, in the first window, and after the last one; their shares of a short warm-up.
BEFORE, WINDOW, AFTER = 75, 25, 50
SHARES = 0.15, 0.1
#: Draws below which a warm-up has no window.
LEAST = 20
#: The draws whose weight the prior guess of the variances has, and how small that guess is relative to the start's.
PRIOR_DRAWS, PRIOR_SHARE = 5.0, 1e-3


def windows(warmup: int) -> tuple[int, ...]:
    """The draws after which the metric is set anew, from the first; nothing is collected before the first entry.

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

    Its buffers are all of its state.

    Args:
        acceptance: α*, the mean acceptance that is aimed at.
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
        """The average, to sample with."""
        return exp(self.numbers[1])

    def restart(self, step_size: float) -> None:
        """Forget all but a guess, from which larger steps are tried first."""
        self.numbers.copy_(torch.tensor([log(step_size), log(step_size), log(10 * step_size), 0.0, 0.0]))

    def update(self, accepted: float) -> None:
        """Learn from the mean acceptance of one draw."""
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
        """Take one draw of each chain into the window."""
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
