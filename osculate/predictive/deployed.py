"""A posterior as an immutable module: mean, or class probabilities, and variance of the function values."""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, fx, nn

from osculate.batches import require_inputs
from osculate.inputs import Inputs, arguments, concatenate, count, moved, output_of, take
from osculate.likelihoods import Likelihood, Link
from osculate.likelihoods.quadrature import normal_points
from osculate.linalg import root
from osculate.parameters import frozen_copy
from osculate.posteriors import Gaussian, as_gaussian
from osculate.posteriors.linearised import moments, single_outputs
from osculate.predictive.link import MonteCarlo
from osculate.predictive.predict import choose_link, interacting_moments
from osculate.predictive.tracing import WAY_OUT, moments_by_layers, moments_of_rows

#: Relative difference from the posterior's own moments up to which a module is taken for right: on a CPU, and on a GPU,
#: whose convolutions round to ten bits.
CLOSE, CLOSE_ON_GPU = 1e-4, 1e-3
#: Inputs that a module is compared at.
EXAMPLES = 3


def deploy(q: Any, x: Inputs | None = None, *, link: str | Link | None = None) -> "Deployed":
    r"""A posterior as an immutable ``nn.Module``, for serving and for export by ``torch.export`` and to ONNX.

    .. math:: x \mapsto \big(\operatorname{E} f(x), \operatorname{diag} J(x) \Lambda^{-1} J(x)^\top\big), \quad
              \text{or} \quad \big(p(y \mid x), \operatorname{diag} J(x) \Lambda^{-1} J(x)^\top\big)
              \text{ for classes}

    The module holds copies of the network and of the posterior's factors, and needs neither the posterior nor its data.
    Of a posterior over the last layer, an ``nn.Linear`` or ``nn.Conv2d``, it is the network with another last layer,
    whatever the others are. All others become a graph of tensor operations, with the columns of the Jacobian by one
    backward pass: the operations are those that the network took for ``x``, for inputs of the same shape and batches of
    any size.

    Args:
        q: A Gaussian posterior with structure "kron", "ekfac", "diag", "block" or "full", or what ``osc.train``
            returned.
        x: Some inputs, of which three are used; by default the first data of the fit, which files do not hold.
        link: Method of integrating probabilities over Gaussian logits, as in ``osc.predict``.

    Returns:
        The module, on the device of the posterior.

    Raises:
        TypeError: the posterior is not Gaussian.
        ValueError: it has another structure; a network has an operation that the graph cannot hold; no inputs; a link
            for a likelihood that needs none.

    Cost: a few predictions for three inputs. The module's call takes one forward pass, for other posteriors than of the
    last layer also C backward passes without weight gradients, all inputs at once.

    >>> import osculate as osc
    >>> X, Y = torch.randn(30, 2), torch.randint(3, (30,))
    >>> q = osc.laplace(nn.Linear(2, 3), osc.likelihoods.Categorical(), (X, Y))
    >>> probs, variance = osc.deploy(q)(X[:5])
    >>> probs.shape, variance.shape
    (torch.Size([5, 3]), torch.Size([5, 3]))
    """
    q = as_gaussian(q, "osc.deploy")
    x = _examples(q, x)
    likelihood = q.likelihood
    if link is not None and not likelihood.links:
        raise ValueError(
            f"link={link!r} integrates probabilities of classes, and {type(likelihood).__name__} has none: leave it "
            "out."
        )
    chosen = choose_link(likelihood, link) if likelihood.links else None
    joint = likelihood if chosen is not None and likelihood.needs_covariance(chosen) else None
    with torch.no_grad():
        truth = _moments(q, x, joint)
        found = _by_last_layer(q, x, joint, truth) or _by_layers(q, x, joint, truth)
        probabilities = None if chosen is None else Probabilities(likelihood, chosen, truth[0])
    return Deployed(found, joint, probabilities)


class Deployed(nn.Module):
    """A posterior's function as a module, see :func:`deploy`: ``forward`` returns (mean or probabilities, variance).

    It has no trainable parameters, stays as it is in ``train()``, and moves between devices but not between data types.

    Args:
        moments: A module that returns the mean of the function, and covariances (N, T, E, E).
        joint: The likelihood whose interacting outputs have covariances; None for variances alone.
        probabilities: A module from moments to class probabilities; None where the mean of the function is returned.
    """

    def __init__(self, moments: nn.Module, joint: Likelihood | None, probabilities: nn.Module | None) -> None:
        super().__init__()
        self.moments, self.probabilities = moments, probabilities
        self._joint = joint
        super().train(False)

    def forward(self, x: Inputs) -> tuple[Tensor, Tensor]:
        """The mean of the function (N, *C), or probabilities as those of ``osc.predict``, and variances (N, *C).

        Args:
            x: Inputs (N, …): a tensor, a tuple of tensors or a mapping, as in ``osc.predict``; not checked for NaN.

        Raises:
            ValueError: the shape of the inputs differs from that for which the graph was made.
        """
        f, covariance = self.moments(x)
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        variance = variance.reshape(f.shape) if self._joint is None else self._joint.merge(variance, f.shape)
        if self.probabilities is not None:
            f = self.probabilities(f, variance if self._joint is None else covariance)
        return f, variance

    def train(self, mode: bool = True) -> "Deployed":
        """This module as it is."""
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Deployed":
        """Move to another device, which is how ``to``, ``cuda``, ``double`` and ``half`` reach every tensor.

        Raises:
            ValueError: it is a conversion to another data type.
        """
        for tensor in self.state_dict().values():
            if (given := fn(tensor.new_zeros(0)).dtype) != tensor.dtype:
                raise ValueError(
                    f"a deployed posterior keeps its data type, {tensor.dtype}, since factors that were computed in it "
                    f"are no better in {given}: convert the network, fit it, and call osc.deploy again."
                )
        super()._apply(fn, recurse)
        return self


class Probabilities(nn.Module):
    """The probabilities of classes under Gaussian logits, as in ``osc.predict``.

    Args:
        likelihood: p(y|f).
        link: Method of integration.
        f: Some outputs of the network.
    """

    points: Tensor

    def __init__(self, likelihood: Likelihood, link: Link, f: Float[Tensor, "N *C"]) -> None:
        super().__init__()
        self._likelihood, self._link = likelihood, link
        self._joint = likelihood.needs_covariance(link)
        self._shape = likelihood.distribution(f).probs.shape[1:]  # type: ignore[attr-defined]
        if isinstance(link, MonteCarlo):
            self.register_buffer("points", normal_points(link.points, likelihood.events(f) if self._joint else 1).to(f))

    def forward(self, f: Tensor, spread: Tensor) -> Tensor:
        """Probabilities in the shape of those of ``osc.predict``.

        Args:
            f: Mean of the logits (N, *C).
            spread: Covariances (N, T, E, E) of interacting logits, or variances (N, *C).
        """
        mean = self._likelihood.split(f).flatten(0, 1)
        spread = (spread if self._joint else self._likelihood.split(spread)).flatten(0, 1)
        if isinstance(self._link, MonteCarlo):
            link: Link = partial(_average, self.points)
        else:
            link = self._link
        probs = link(self._likelihood, mean, spread)
        return probs.reshape(f.shape[0], *self._shape).clamp(0, 1)


def _average(
    points: Float[Tensor, "S E"], likelihood: Likelihood, mean: Float[Tensor, "M E"], spread: Tensor
) -> Float[Tensor, "M E"]:
    """The mean response over these points of a standard normal, as by :class:`osculate.predictive.link.MonteCarlo`."""
    if spread.ndim == mean.ndim:
        return likelihood.response(mean + spread.sqrt() * points.unsqueeze(-1)).mean(0)
    factor = written_out_root(spread) if torch.compiler.is_compiling() else root(spread)
    return likelihood.response((mean.unsqueeze(-1) + factor @ points.T).permute(2, 0, 1)).mean(0)


def written_out_root(covariance: Float[Tensor, "M E E"]) -> Float[Tensor, "M E E"]:
    """The lower Cholesky factor in elementary operations, for formats without one; zero columns for zero pivots."""
    columns, size = [], covariance.shape[-1]
    for number in range(size):
        pivot = covariance[:, number : number + 1, number].clamp(min=0)
        inverse = torch.where(pivot > 0, pivot, 1.0).rsqrt() * (pivot > 0)
        column = nn.functional.pad(covariance[:, number:, number] * inverse, (number, 0))
        covariance = covariance - column.unsqueeze(-1) * column.unsqueeze(-2)
        columns.append(column)
    return torch.stack(columns, -1)


class LastLayer(nn.Module):
    """A linear layer, or a convolution, that returns beside its outputs what a graph makes of the same inputs.

    Args:
        graph: A graph with the inputs of the layer (M, I) at one position as rows.
        layer: The layer.
    """

    def __init__(self, graph: fx.GraphModule, layer: nn.Linear | nn.Conv2d) -> None:
        super().__init__()
        self.graph = graph
        self._window: list[tuple[int, ...]] = []
        if isinstance(layer, nn.Conv2d):
            assert not isinstance(layer.padding, str)
            sizes = (layer.kernel_size, layer.dilation, layer.padding, layer.stride)
            self._window = list(zip(*sizes, strict=True))

    def forward(self, a: Tensor) -> Tensor:
        """The outputs and what stands beside them along the axis of the outputs: the last one, of images the second."""
        if not self._window:
            rows = self.graph(a.reshape(-1, a.shape[-1]))
            return rows.reshape(*a.shape[:-1], rows.shape[-1])
        kernel, dilation, padding, stride = zip(*self._window, strict=True)
        columns = nn.functional.unfold(a, kernel, dilation, padding, stride)  # (N, I, R)
        rows = self.graph(columns.transpose(1, 2).reshape(-1, columns.shape[1]))
        sides: list[int] = [
            (size + 2 * p - d * (k - 1) - 1) // s + 1
            for size, (k, d, p, s) in zip(a.shape[2:], self._window, strict=True)
        ]
        return rows.reshape(a.shape[0], *sides, rows.shape[-1]).movedim(-1, 1)


class ByLastLayer(nn.Module):
    """The moments of a network whose last layer returns, beside its outputs, their flat covariances.

    Args:
        network: The network.
        x: Inputs like those that it takes.
        outputs: Number of outputs at one position.
        axis: Axis of these outputs.
        joint: True for covariances of these outputs; False for variances.
    """

    def __init__(self, network: nn.Module, x: Inputs, outputs: int, axis: int, joint: bool) -> None:
        super().__init__()
        self.network = network
        # sides of images and lengths of sequences may be others, where the network takes them
        self._like = (x.dtype, (None,) * (x.ndim - 1)) if isinstance(x, Tensor) else None
        self._outputs, self._axis, self._joint = outputs, axis, joint

    def forward(self, x: Inputs) -> tuple[Tensor, Tensor]:
        """The mean of the function (N, *C), and covariances (N, T, E, E)."""
        if self._like is not None:
            _require(x, *self._like)
        if isinstance(x, Tensor):
            both = output_of(self.network(x), x)
        else:
            positional, named = arguments(x, self.network)
            both = output_of(self.network(*positional, **named), x)
        size = self._outputs
        f = both.narrow(self._axis, 0, size)
        rest = both.narrow(self._axis, size, size * size if self._joint else size)
        if self._joint:
            rest = rest.movedim(self._axis, -1)
            return f, rest.reshape(both.shape[0], prod(rest.shape[1:-1]), size, size)
        return f, rest.reshape(both.shape[0], prod(rest.shape[1:]), 1, 1)


class ByLayers(nn.Module):
    """The moments of a network as a graph of tensor operations.

    Args:
        graph: The graph.
        x: Inputs for which it was made.
    """

    def __init__(self, graph: fx.GraphModule, x: Tensor) -> None:
        super().__init__()
        self.graph = graph
        self._shape, self._dtype = x.shape[1:], x.dtype

    def forward(self, x: Inputs) -> tuple[Tensor, Tensor]:
        """The mean of the function (N, *C), and covariances (N, T, E, E)."""
        _require(x, self._dtype, self._shape)
        return self.graph(x)


def _require(x: Inputs, dtype: torch.dtype, sides: Sequence[int | None]) -> None:
    """Raise ValueError for inputs of another data type, or of other sides behind the batch; None is any size."""
    got = type(x).__name__
    if isinstance(x, Tensor):
        pairs = zip(x.shape[1:], sides, strict=False)
        if x.dtype == dtype and x.ndim == 1 + len(sides) and all(wanted in (None, size) for size, wanted in pairs):
            return
        got = f"{tuple(x.shape)} {x.dtype}"
    expected = ", ".join(["N", *("…" if size is None else str(size) for size in sides)])
    raise ValueError(
        f"this module was made for inputs of shape ({expected}) and {dtype}, got {got}: convert them, or call "
        "osc.deploy with inputs like these."
    )


def _examples(q: Gaussian, x: Inputs | None) -> Inputs:
    """A few inputs, two at least."""
    if x is None:
        if q.first_data is None:
            raise ValueError("a posterior from a file has no inputs: pass some as x, as in osc.deploy(q, X[:3]).")
        x = q.first_data[0]
    require_inputs(x)
    x = moved(take(x, slice(EXAMPLES)), q.network.device)
    return concatenate([x, x]) if count(x) == 1 else x


def _moments(q: Gaussian, x: Inputs, joint: Likelihood | None) -> tuple[Tensor, Tensor]:
    """The moments by the posterior itself."""
    return moments(q, x, single_outputs) if joint is None else interacting_moments(q, x)


def _by_last_layer(q: Gaussian, x: Inputs, joint: Likelihood | None, truth: tuple[Tensor, Tensor]) -> nn.Module | None:
    """The module for a posterior over a last layer, None for any other."""
    block = q.fit.plan.blocks[0]
    if len(q.fit.plan.blocks) > 1 or block.kind != "outer" or block.kept is not None:
        return None
    path, _, _ = block.names[0].rpartition(".")
    network = frozen_copy(q.network.module).eval().requires_grad_(False)
    layer = network.get_submodule(path)
    if any(name.rpartition(".")[0] != path for name in block.names):
        return None
    if not isinstance(layer, nn.Linear | nn.Conv2d) or type(layer) not in (nn.Linear, nn.Conv2d):
        return None
    if isinstance(layer, nn.Conv2d) and (
        layer.groups > 1 or isinstance(layer.padding, str) or layer.padding_mode != "zeros"
    ):
        return None
    replaced = LastLayer(moments_of_rows(q, layer, joint is not None), layer)
    if path:
        network.set_submodule(path, replaced)
    outputs, axis = len(layer.weight), 1 if isinstance(layer, nn.Conv2d) else -1
    module = ByLastLayer(network if path else replaced, x, outputs, axis, joint is not None)
    try:
        found = module(x)
    except (RuntimeError, ValueError, TypeError, IndexError):  # the network goes on from this layer
        return None
    return module if _agree(found, truth) else None


def _by_layers(q: Gaussian, x: Inputs, joint: Likelihood | None, truth: tuple[Tensor, Tensor]) -> nn.Module:
    """The module for any other posterior."""
    if not isinstance(x, Tensor):
        raise ValueError(f"the graph of a network takes one tensor, and this one takes several: {WAY_OUT}.")
    module = ByLayers(moments_by_layers(q, x, joint), x)
    if not _agree(module(x), truth):
        raise ValueError(f"the graph of this network gives other moments than the posterior: {WAY_OUT}.")
    return module


def _agree(found: tuple[Tensor, Tensor], truth: tuple[Tensor, Tensor]) -> bool:
    """True if moments are the same up to rounding."""
    pairs = list(zip(found, truth, strict=True))
    if any(one.shape != other.shape for one, other in pairs):
        return False
    close = CLOSE if truth[0].device.type == "cpu" else CLOSE_ON_GPU
    return all(bool((one - other).abs().max() <= close * other.abs().max()) for one, other in pairs)
