"""Bayesian optimisation: the maximum of an expensive function, with few evaluations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.checks import require_library, require_whole
from osculate.progress import track

#: Starts and raw samples of the search for the maximum of the acquisition.
STARTS, RAW = 8, 256


@dataclass(frozen=True)
class Optimisation:
    """The evaluations of an optimisation.

    Args:
        points: Points (N, d), in the order of their evaluation.
        values: Values (N,).
    """

    points: Float[Tensor, "N d"]
    values: Float[Tensor, " N"]

    @property
    def best(self) -> Float[Tensor, " N"]:
        """The largest value so far, after each evaluation."""
        return self.values.cummax(0).values

    @property
    def point(self) -> Float[Tensor, " d"]:
        """The point of the largest value."""
        return self.points[self.values.argmax()]


def bayesian_optimisation(
    function: Callable[[Float[Tensor, "N d"]], Float[Tensor, " N"]],
    bounds: Sequence[Sequence[float | int]],
    fit: Callable[[Tensor, Tensor], Any],
    evaluations: int = 30,
    first: int | None = None,
    seed: int = 0,
    compress: bool = True,
    progress: bool = False,
) -> Optimisation:
    r"""Maximise a function by evaluating it where a model expects the largest improvement.

    .. math:: x_{t+1} = \operatorname{argmax}_x \log \operatorname{E}_{p(f \mid D_t)} \max(f(x) - \max_s z_s, 0),
              \qquad z = \operatorname{sign}(u) \log(1 + |u|), \quad
              u = \frac{y - \operatorname{med}(y)}{\operatorname{med} |y - \operatorname{med}(y)|}

    After a first Sobol design the model is fitted anew to all evaluations, in the unit cube, and the acquisition is
    maximised by gradients from several starts. Model and acquisition see the values compressed to z, whose order is
    that of y: otherwise a few values that are far worse than all others would set the scale. [ament2023]

    Args:
        function: Values of some points; larger is better.
        bounds: Lower and upper bound of each coordinate.
        fit: A function from points (N, d) in the unit cube and values (N, 1) to a model of BoTorch, such as
            ``osculate.adapters.botorch.LaplaceModel.fitted``.
        evaluations: N, in all.
        first: Evaluations of the first design; by default 2 (d + 1), half of all at most.
        seed: Seed of the first design and of the starts.
        compress: False to hand the values to the model as they are.
        progress: Show a progress bar.

    Raises:
        ValueError: no bounds, bounds that are empty, or a value that is not finite.
        ImportError: BoTorch is missing.

    Cost: one fit and one search an evaluation.
    """
    require_library("botorch", "Bayesian optimisation")
    from botorch.acquisition import LogExpectedImprovement
    from botorch.optim import optimize_acqf

    require_whole("evaluations", evaluations, 2)
    low, high = torch.tensor(bounds, dtype=torch.double).T if bounds else (torch.zeros(0), torch.zeros(0))
    if not len(low) or not bool((low < high).all()):
        raise ValueError(f"each coordinate needs a lower and a larger upper bound, got {list(bounds)!r}.")
    first = min(2 * (len(low) + 1), evaluations // 2) if first is None else first
    units = torch.quasirandom.SobolEngine(len(low), scramble=True, seed=seed).draw(first, dtype=torch.double)
    values = _values(function, low + units * (high - low))
    cube = torch.stack([torch.zeros_like(low), torch.ones_like(low)])
    for number in track(range(first, evaluations), "evaluations", evaluations - first, progress):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1000 * seed + number)
            z = compressed(values) if compress else values
            model = fit(units, z.unsqueeze(1))
            acquisition = LogExpectedImprovement(model, best_f=z.max())
            chosen, _ = optimize_acqf(acquisition, cube, q=1, num_restarts=STARTS, raw_samples=RAW)
        units = torch.cat([units, chosen.detach().to(units)])
        values = torch.cat([values, _values(function, low + units[-1:] * (high - low))])
    return Optimisation(low + units * (high - low), values)


def compressed(values: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """sign(u) log(1 + |u|), with u the deviation from the median in units of its median size.

    >>> compressed(torch.tensor([0.0, 1.0, 2.0, 3.0, 1000.0]))
    tensor([-1.0986, -0.6931,  0.0000,  0.6931,  6.9068])
    """
    apart = values - values.median()
    size = apart.abs().median()
    relative = apart / size if size > 0 else apart
    return relative.sign() * relative.abs().log1p()


def _values(function: Callable[[Tensor], Tensor], x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    y = torch.as_tensor(function(x), dtype=torch.double).detach().reshape(-1)
    if len(y) != len(x):
        raise ValueError(f"the function gave {len(y)} values for {len(x)} points.")
    if not bool(y.isfinite().all()):
        bad = x[~y.isfinite()][0].tolist()
        raise ValueError(f"the value at {bad} is not finite: return a low finite value where the function fails.")
    return y
