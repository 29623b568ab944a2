"""Sensitivity: on which inputs an uncertain prediction depends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributions import Categorical, Distribution

from osculate.batches import require_inputs
from osculate.checks import require_whole
from osculate.posteriors import as_posterior
from osculate.predictive import functional_variance, predict
from osculate.progress import track
from osculate.registry import choose, lookup
from osculate.tasks import _uncertainty as uncertainty
from osculate.tasks._uncertainty import SAMPLES

#: Uncertainties of a prediction by name.
OF: Mapping[str, Callable[..., Float[Tensor, " N"]]] = {
    "entropy": uncertainty.entropy,
    "bald": uncertainty.mutual_information,
    "aleatoric": uncertainty.expected_entropy,
    "variance": uncertainty.variance,
}
METHODS = ("integrated", "gradient_times_input", "gradient")
#: From inputs and the rows that they belong to, a number for each.
Quantity = Callable[[Float[Tensor, "n *D"], Int[Tensor, " n"]], Float[Tensor, " n"]]


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """The result of :func:`sensitivity`.

    Args:
        attributions: A number for each entry of the inputs, in their shape.
        values: The quantity at the inputs.
        baseline_values: The quantity at their baselines; None for plain gradients.
    """

    attributions: Float[Tensor, "N *D"]
    values: Float[Tensor, " N"]
    baseline_values: Float[Tensor, " N"] | None

    @property
    def gap(self) -> Float[Tensor, " N"]:
        """The difference of the quantity from its baseline less the sum of the attributions.

        Raises:
            ValueError: plain gradients, which are no parts of a difference.
        """
        if self.baseline_values is None:
            raise ValueError("plain gradients have no sum: use method='integrated', whose parts add up.")
        return self.values - self.baseline_values - self.attributions.flatten(1).sum(1)

    def metrics(self) -> dict[str, float]:
        """The mean value, and the root mean square of :attr:`gap` if the attributions are parts of a difference."""
        found = {"value": float(self.values.mean())}
        return found if self.baseline_values is None else {**found, "gap": float(self.gap.square().mean().sqrt())}


def sensitivity(
    q: Any,
    x: Float[Tensor, "N *D"],
    of: str = "bald",
    *,
    method: str = "integrated",
    baseline: Float[Tensor, "..."] | float = 0.0,
    output: int | None = None,
    steps: int = 32,
    samples: int = SAMPLES,
    seed: int = 0,
    batch_size: int = 256,
    progress: bool = False,
) -> Sensitivity:
    r"""Attribute the uncertainty of each prediction to the entries of its input.

    Quantities u(x): "entropy", H[y|x]; its epistemic part "bald", I[y; f \| x], and its other part "aleatoric",
    E_f H[y|f], so that the attributions of both add up to those of the entropy; "variance", the trace of Cov f(x); and
    "mean", the probability of the most probable class at x, or the mean of a single output.

    * "gradient": ∂u/∂x_d, the change by a small change of the input;
    * "gradient_times_input": (x_d − b_d) ∂u/∂x_d, its part in the difference from a baseline b to first order;
    * "integrated": integrated gradients, whose sum is u(x) − u(b) [sundararajan2017]:

    .. math:: a_d = (x_d - b_d) \int_0^1 \partial_d u(b + t (x - b))\, dt,
              \qquad \sum_d a_d = u(x) - u(b),

    by the Gauss–Legendre rule. Its error is ``Sensitivity.gap``: it falls quickly with ``steps`` for networks with
    smooth activations. Where a ReLU or the maximum of a pool switches, the Jacobian of the linearised predictive jumps
    and u with it, which no gradient sees: the gap of such networks does not vanish.

    Args:
        q: A posterior, or what ``osc.train`` returned.
        x: Inputs (N, …) of floating numbers.
        of: Name of the quantity; Gaussian noise or classes for all but "variance" and "mean".
        method: "integrated", "gradient_times_input" or "gradient".
        baseline: An input without information, such as 0 (a black image; the mean of standardised columns): a number,
            one input, or one for each.
        output: Index of the output whose mean or variance is meant, among those of a datum.
        steps: Number of points on the path.
        samples: S, draws of the function.
        seed: Seed of posteriors that draw networks, the same for all points.
        batch_size: Points at a time.
        progress: Show a progress bar.

    Raises:
        ValueError: an unknown quantity or method, inputs that are empty or not finite, a baseline of another shape,
            an output that does not exist or is not named, or a likelihood without the quantity.
        TypeError: inputs that are no floating tensor, or a posterior without a distribution of functions.

    Cost: a prediction and its derivative, about three times as much, at N (or N × ``steps``) points.

    >>> import osculate as osc
    >>> X = torch.randn(30, 2)
    >>> q = osc.laplace(torch.nn.Linear(2, 1), osc.likelihoods.Gaussian(0.3), (X, X[:, :1]), prior=1.0)
    >>> found = sensitivity(q, X[:5], of="variance")
    >>> found.attributions.shape, bool(found.gap.abs().max() < 1e-5)
    (torch.Size([5, 2]), True)
    """
    choose("quantity", of, (*OF, "mean"))
    choose("method", method, METHODS)
    for name, value in {"steps": steps, "batch_size": batch_size, "samples": samples}.items():
        require_whole(name, value)
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"derivatives need one floating tensor of inputs, got {kind}: tokens have none.")
    require_inputs(x)
    network = as_posterior(q).network
    x = x.detach().to(network.device)
    start = torch.as_tensor(baseline, dtype=x.dtype, device=x.device)
    if start.ndim and start.shape not in (x.shape, x.shape[1:]):
        raise ValueError(
            f"the baseline has shape {tuple(start.shape)}, the inputs {tuple(x.shape)}: give a number, one input or "
            "one for each."
        )
    start = start.expand(x.shape)
    quantity = _quantity(q, x, of, output, samples, seed, batch_size)
    ends = [_values(quantity, points, batch_size) for points in (x, *[start] * (method != "gradient"))]
    nodes, weights = np.polynomial.legendre.leggauss(steps) if method == "integrated" else ([1.0], [2.0])
    slopes = torch.zeros_like(x)
    parts = _parts(len(x), len(nodes), batch_size)
    for part, step in track(parts, f"sensitivity of {of}", len(parts), progress):
        points = start[part] + 0.5 * (1 + float(nodes[step])) * (x[part] - start[part])
        slopes[part] += 0.5 * float(weights[step]) * _slope(quantity, points, torch.arange(len(x))[part])
    attributions = slopes if method == "gradient" else slopes * (x - start)
    return Sensitivity(attributions.cpu(), ends[0], ends[1] if len(ends) > 1 else None)


def _parts(size: int, steps: int, batch_size: int) -> list[tuple[slice, int]]:
    """Rows and step of each evaluation."""
    rows = [slice(first, first + batch_size) for first in range(0, size, batch_size)]
    return [(part, step) for part in rows for step in range(steps)]


@torch.no_grad()
def _values(quantity: Quantity, x: Float[Tensor, "N *D"], batch_size: int) -> Float[Tensor, " N"]:
    rows = torch.arange(len(x)).split(batch_size)
    return torch.cat([quantity(x[part], part).cpu() for part in rows])


def _slope(quantity: Quantity, x: Float[Tensor, "n *D"], rows: Int[Tensor, " n"]) -> Float[Tensor, "n *D"]:
    with torch.enable_grad():
        leaf = x.clone().requires_grad_()
        total = quantity(leaf, rows).sum()
        # a constant, as the entropy of noise of a fixed scale is, depends on no input
        return torch.autograd.grad(total, leaf)[0] if total.requires_grad else torch.zeros_like(leaf)


def _quantity(
    q: Any, x: Float[Tensor, "N *D"], of: str, output: int | None, samples: int, seed: int, batch_size: int
) -> Quantity:
    """The function that is attributed; a class that is not named is the most probable one at the inputs."""

    def draws() -> dict[str, Any]:
        return {"samples": samples, "generator": torch.Generator().manual_seed(seed)}

    if of == "mean":
        with torch.no_grad():
            found = torch.cat([_means(predict(q, rows, **draws())) for rows in x.split(batch_size)])
        chosen = _columns(found, output, as_posterior(q).likelihood.saturates)
        return lambda points, rows: _means(predict(q, points, **draws()))[torch.arange(len(rows)), chosen[rows]]
    if of == "variance" and output is not None:
        with torch.no_grad():
            _columns(
                functional_variance(q, x[:1], diagonal=True).flatten(1), output, False
            )  # an error if there is none
        return lambda points, rows: functional_variance(q, points, diagonal=True).flatten(1)[:, output]
    if output is not None:
        raise ValueError(f"output={output} is for of='mean' and of='variance': {of!r} is of all outputs together.")
    measure = lookup("quantity", of, OF)
    return lambda points, rows: measure(q, points, **draws())


def _means(predictive: Distribution) -> Float[Tensor, "N c"]:
    values = predictive.probs if isinstance(predictive, Categorical) else predictive.mean
    return values.flatten(1)


def _columns(means: Float[Tensor, "N c"], output: int | None, classes: bool) -> Int[Tensor, " N"]:
    """The index of an output for each input."""
    outputs = means.shape[1]
    if output is None and (outputs == 1 or classes):
        return means.argmax(1)
    if output is None or not 0 <= output < outputs:
        raise ValueError(f"a datum has {outputs} outputs, got output={output}: name one, from 0 to {outputs - 1}.")
    return torch.full((len(means),), output, device=means.device)
