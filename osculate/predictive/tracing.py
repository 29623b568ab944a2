"""A predictive as a graph of tensor operations, for batches of any size."""

import copy
from collections.abc import Callable, Mapping
from functools import partial, reduce
from threading import RLock
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._decomp import get_decompositions
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from osculate.curvature.columns import Columns
from osculate.curvature.engine import forms_of
from osculate.curvature.forms import AnyForm, Unit
from osculate.curvature.tape import Recorder
from osculate.differentiation import Traceable
from osculate.inputs import output_of
from osculate.likelihoods import Likelihood
from osculate.parameters import frozen_copy
from osculate.posteriors import Gaussian
from osculate.posteriors.linearised import rows_times
from osculate.predictive.graphs import simplify
from osculate.structures import PosteriorPrecision
from osculate.structures.blocks import (
    DensePrecision,
    DiagonalPrecision,
    InterpolatedPrecision,
    KroneckerPrecision,
    Precision,
    grams,
)

#: A tracer takes the place of the call of modules for the whole process.
_ALONE = RLock()
#: Derivatives of activations that exchange formats do not have, from elementary operations.
_DERIVATIVES: Any = get_decompositions(
    [
        getattr(torch.ops.aten, f"{name}_backward")
        for name in (
            *("elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log_sigmoid", "mish", "sigmoid"),
            *("silu", "softplus", "tanh"),
        )
    ]
)
#: What to do where a network has no graph.
WAY_OUT = (
    "fit subset='last_layer' of a network that ends in an nn.Linear or nn.Conv2d, whose other layers may be any, or "
    "predict with osc.predict"
)


def traced(function: Callable[[Tensor], Any], x: Tensor) -> fx.GraphModule:
    """A function of a batch as a graph for batches of any size, without gradients; its constants are buffers.

    Args:
        function: The function; what it reads beside its argument is constant.
        x: Some inputs (N, …), two at least.

    Raises:
        ValueError: it treats this number of inputs in a way of its own.
    """
    function(x)  # what it computes once and keeps is made of numbers
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    sizes = [DimDynamic.DYNAMIC, *[DimDynamic.STATIC] * (x.ndim - 1)]
    fake = mode.from_tensor(x.detach().clone(), symbolic_context=StatelessSymbolicContext(sizes))
    with _ALONE, mode:
        graph = make_fx(function, decomposition_table=_DERIVATIVES, _allow_non_fake_inputs=True)(fake)
    if mode.shape_env is not None and mode.shape_env.replacements:
        raise ValueError("an operation of this network depends on the number of inputs.")
    simplify(graph)
    return copy.deepcopy(graph).eval()  # with memory of its own


def contraction(precision: PosteriorPrecision) -> Callable[[Mapping[int, AnyForm], int], Tensor]:
    """A function from forms, and the number of columns that belong together, to J Λ⁻¹ Jᵀ, without factorisations.

    Args:
        precision: Λ.

    Raises:
        ValueError: a structure other than products of factors, diagonals and dense matrices.
    """
    parts = [
        InterpolatedPrecision(p.block, p.scale, p.signal, p.weight, p.bias) if type(p) is KroneckerPrecision else p
        for p in precision.parts
    ]
    whiten: dict[Precision, Tensor] = {}
    for part in parts:
        if isinstance(part, DensePrecision):
            whiten[part] = part.whiten(torch.eye(len(part.size), dtype=torch.double, device=part.size.device))
        elif not isinstance(part, KroneckerPrecision | DiagonalPrecision):
            name = precision.curvature.structure.name
            raise ValueError(
                f"osc.deploy cannot precompute the factors of structure={name!r}: fit with 'kron', 'diag' or 'full', "
                "or predict with osc.predict."
            )

    def contract(forms: Mapping[int, AnyForm], group: int) -> Tensor:
        each = zip(parts, precision.curvature.project(forms, group), strict=True)
        used = [(part, projected) for part, projected in each if projected is not None]
        return reduce(torch.add, (_products(part, whiten.get(part), p, group) for part, p in used))

    return contract


def _products(part: Precision, whiten: Tensor | None, projected: Any, group: int) -> Tensor:
    """The share of one block in J Λ⁻¹ Jᵀ, by a product in double precision in place of a triangular solve."""
    if whiten is None:
        return part.contract(projected, group)
    return grams((projected.double() @ whiten).to(projected.dtype), group)


def moments_by_layers(q: Gaussian, x: Tensor, likelihood: Likelihood | None) -> fx.GraphModule:
    """The mean of the function, and covariances (N, T, E, E) of its outputs, by one pass forward and one back.

    Args:
        q: The posterior.
        x: Some inputs.
        likelihood: The likelihood whose interacting outputs have covariances; None for variances alone.

    Raises:
        ValueError: a parameter is used in a way that no rule covers, or a layer cannot be traced, with its name.
    """
    plan, contract, network = q.fit.plan, contraction(q.precision), q.network
    if names := [name for block in plan.blocks if block.kind == "fallback" for name in block.names]:
        raise ValueError(
            f"osc.deploy has no rule for the way in which this network uses {names[0]!r}: leave it out of subset, "
            f"{WAY_OUT}."
        )
    module = frozen_copy(network.module, {})
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in network.space.names)
    with torch.no_grad():
        first = network(x)[:1].to(network.state_dtype)
    group = likelihood.events(first) if likelihood is not None else 1
    units = Columns.units(first, group, likelihood)
    columns = units.part(0, units.count)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            recorder = Recorder().over(network.space.names, module)
            with Traceable(), recorder:
                f = output_of(module(x), x)
            uses = [(use, edge) for use, edge, _ in recorder.uses]
            edges = [edge for _, edge in uses]
            each = columns.to(f.dtype).expand(-1, *f.shape)
            pulled = torch.vmap(lambda column: torch.autograd.grad(f, edges, column, retain_graph=True))(each)
        with Traceable():
            forms = forms_of(network, plan, [(use, g) for (use, _), g in zip(uses, pulled, strict=True)], f.shape[0])
            covariance = contract(forms, group)
            f = f.detach().to(network.state_dtype)
            if q.offset is None or (shift := rows_times(plan, forms, q.offset)) is None:
                return f, covariance
            shift = shift.T.unflatten(1, (-1, group))
            return f + (shift.reshape(f.shape) if likelihood is None else likelihood.merge(shift, f.shape)), covariance

    try:
        return traced(function, x)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of any kind, from inside an operation
        raise ValueError(f"osc.deploy cannot make a graph of {_untraceable(module, x)}: {WAY_OUT}.") from error


def _untraceable(module: nn.Module, x: Tensor) -> str:
    """The first layer whose derivative cannot be traced."""
    calls: list[tuple[str, nn.Module, Tensor]] = []
    for name, layer in module.named_modules():
        if not any(layer.children()):

            def hook(layer: nn.Module, args: tuple, output: Any, name: str = name) -> None:
                if isinstance(args[0], Tensor) and args[0].is_floating_point():
                    calls.append((name, layer, args[0].detach()))

            layer.register_forward_hook(hook)
    module(x)
    for name, layer, a in calls:
        layer._forward_hooks.clear()
        try:
            traced(partial(_derivative, layer), a)
        except Exception:
            return f"the layer {name!r} ({type(layer).__name__})"
    return "this network"


def _derivative(layer: nn.Module, a: Tensor) -> Tensor:
    """Two columns pulled back through a layer."""
    with torch.enable_grad(), Traceable():
        a = a.detach().requires_grad_() * 1  # no leaf, into which a layer may write
        f = layer(a)
    columns = torch.ones(2, *(1,) * f.ndim, dtype=f.dtype, device=f.device).expand(-1, *f.shape)
    return torch.vmap(lambda column: torch.autograd.grad(f, a, column, retain_graph=True)[0])(columns)


def moments_of_rows(q: Gaussian, layer: nn.Linear | nn.Conv2d, joint: bool) -> fx.GraphModule:
    """The outputs of a last layer beside their flat covariances, as a graph with the layer's inputs (M, I) as rows.

    Args:
        q: The posterior over its weight, and maybe its bias.
        layer: The layer.
        joint: Return covariances of the outputs; False for variances alone.
    """
    contract, has_bias = contraction(q.precision), q.fit.plan.blocks[0].has_bias
    weight, *biases = q.network.space.unflatten(q.mean).values()
    weight, bias = weight.flatten(1), biases[0] if has_bias else layer.bias
    group = len(weight) if joint else 1

    def function(rows: Tensor) -> Tensor:
        rows = rows.to(weight)

        def inputs() -> Tensor:
            features = torch.cat([rows, torch.ones_like(rows[:, :1])], 1) if has_bias else rows
            return features.unsqueeze(1).unsqueeze(1)

        f = nn.functional.linear(rows, weight, None if bias is None else bias.to(weight))
        return torch.cat([f, contract({0: Unit(inputs, weight.shape[0])}, group).flatten(1)], 1)

    return traced(function, weight.new_zeros(2, weight.shape[1]))
