"""The diagonal of a network with a bottleneck: exact in the encoder, with a choice of methods for the decoder."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.curvature.columns import GGN, Columns, Kind, pull
from osculate.curvature.engine import Observation, pieces
from osculate.curvature.plan import Plan
from osculate.curvature.products import output_hessian
from osculate.curvature.squared import squared_diagonal
from osculate.differentiation import Unfused
from osculate.inputs import Inputs, count, take
from osculate.likelihoods import Likelihood
from osculate.linalg import psd
from osculate.parameters import Network, ParameterSpace, Within
from osculate.registry import choose
from osculate.structures._base import Curvature, outputs_of
from osculate.structures.approx_diag import output_diagonal, parts
from osculate.structures.blocks import DiagonalBlock
from osculate.structures.diag import Diag

#: Largest number of outputs that count as the bottleneck if no module is narrower.
BOTTLENECK_OUTPUTS = 64
#: The split of each network by the requested name, which the batches of a fit share; freed with the network.
SPLITS: "WeakKeyDictionary[Network, dict[str | None, Split | None]]" = WeakKeyDictionary()
ALTERNATIVES = "Use structure='diag' (exact, one column an output), 'approx_diag' (one backward pass) or 'kron'"


@dataclass(frozen=True)
class MixedDiag(Diag):
    r"""The exact diagonal of G up to a bottleneck z of K units, at a cost of K columns. [miani2022]

    .. math:: M_z = J_{\text{dec}}^\top \Lambda J_{\text{dec}} = S S^\top, \qquad
              \operatorname{diag}(G)_{\text{enc}} = \sum_n \sum_k (J_{\text{enc}}^\top s_{nk})^2

    with J_dec the Jacobian of the outputs by z. Parameters that act on the outputs through z alone form the encoder;
    all others, also those used on both sides, are the decoder.

    Args:
        bottleneck: Name of the module whose output is z. By default the module with the narrowest output among those
            through which every parameter before them acts, narrower than the network's output; of several the last.
            Where there is none and the outputs are at most 64, they are the bottleneck: the whole diagonal is exact.
        decoder: "squared" (the squared chain rule, one backward pass), "exact" (one column an output), or
            "rademacher" (unbiased: the squares of random combinations of all columns).
        samples: Random combinations of the columns for "rademacher".
        seed: Seed of these combinations.

    Raises:
        ValueError: an unknown decoder, or a number of samples that is not positive.

    Cost: K products with J_dec and K columns pulled through the encoder, linear in the size of the outputs; the
    decoder as said.

    >>> net = nn.Sequential(nn.Linear(6, 2), nn.Tanh(), nn.Linear(2, 6))
    >>> X = torch.randn(9, 6)
    >>> q = osc.laplace(net, osc.likelihoods.Gaussian(0.1), (X, X), structure="mixed_diag", prior=1.0)
    >>> q.variance().shape
    torch.Size([32])
    """

    name: ClassVar[str] = "mixed_diag"
    entrywise: ClassVar[bool] = False
    by_products: ClassVar[bool] = True
    bottleneck: str | None = None
    decoder: str = "squared"
    samples: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        choose("decoder", self.decoder, ("squared", "exact", "rademacher"))
        if self.samples < 1:
            raise ValueError(f"the Rademacher estimate needs at least one sample, got samples={self.samples}.")

    def require_few(self, start: Observation, data: int) -> None:
        """Raise ValueError if there are very many columns: one for each output with an exact decoder, else none."""
        super().require_few(start, data)
        if self.decoder == "exact":
            start.require_few(data)

    def add(self, curvature: Curvature, observation: Observation, pass_index: int = 0) -> Tensor:
        """Add the encoder's blocks from columns of M_z, then the decoder's."""
        if not isinstance(observation.kind, GGN):
            raise ValueError(
                f"structure='mixed_diag' is for curvature='ggn', got {observation.kind.name!r}. Use structure='diag', "
                "which is as cheap: exact for the few columns of a Fisher, an estimate for 'hessian'."
            )
        split = self._split(observation)
        if split is None:  # the outputs are the bottleneck: every layer is in the encoder
            return super().add(curvature, observation, pass_index)
        encoder = Until(observation.network, split.module)
        plan = split.plan(observation.plan, split.encoder)
        columns = split.columns(observation)
        for piece in pieces(encoder, plan, observation.x, columns, split.width, observation.memory):
            _accumulate(curvature, split.encoder, piece.forms)
        return self._add_decoder(curvature, observation, split)

    def _split(self, observation: Observation) -> "Split | None":
        """The split of the network, found on its first batch."""
        known = SPLITS.setdefault(observation.network, {})
        if self.bottleneck not in known:
            found = find_split(observation.network, observation.plan, observation.x, self.bottleneck)
            known[self.bottleneck] = found
        return known[self.bottleneck]

    def _add_decoder(self, curvature: Curvature, observation: Observation, split: "Split") -> Tensor:
        outputs, network = [], observation.network
        if not split.decoder:
            with torch.no_grad():
                return torch.cat([network(part.x) for part in parts(observation)]).to(network.state_dtype)
        if self.decoder == "squared":
            names = {name for number in split.decoder for name in observation.plan.blocks[number].names}
            decoder, positions = tracking(network, names), network.space.positions(names)
            where = torch.cat([positions[name].reshape(-1) for name in decoder.space.names])
            for part in parts(observation):
                f, diagonal = squared_diagonal(decoder, part.x, partial(output_diagonal, part))
                full = diagonal.new_zeros(network.space.size)
                full[where.to(full.device)] = diagonal
                for number in split.decoder:
                    block = _diagonal(curvature, number)
                    block.values.add_(full[block.positions])
                outputs.append(f)
            return torch.cat(outputs)
        kind = observation.kind
        if self.decoder == "rademacher":
            generator = torch.Generator().manual_seed(self.seed + observation.number)
            kind = Rademacher(self.samples, generator)
        every = replace(observation, plan=split.plan(observation.plan, split.decoder), kind=kind)
        return outputs_of(every.pieces(), lambda piece: _accumulate(curvature, split.decoder, piece.forms))


def _diagonal(curvature: Curvature, number: int) -> DiagonalBlock:
    block = curvature.blocks[number]
    assert isinstance(block, DiagonalBlock)
    return block


def _accumulate(curvature: Curvature, numbers: tuple[int, ...], forms: Mapping[int, Any]) -> None:
    for number, form in forms.items():
        _diagonal(curvature, numbers[number]).accumulate(form)


@dataclass(frozen=True)
class Rademacher(Kind):
    """Random combinations S ε of the columns of a root S of Λ, ε of independent signs: E (S ε)(S ε)ᵀ = Λ."""

    name: ClassVar[str] = "rademacher"
    samples: int
    generator: torch.Generator

    def columns(self, likelihood: Likelihood, f: Tensor, y: Tensor) -> Columns:
        """One for each sample."""
        return Columns.of(Likelihood.sampled_root(likelihood, f, y, self.samples, self.generator))


@dataclass(frozen=True)
class Split:
    """A network cut at a bottleneck.

    Attributes:
        module: Name of the module with output z.
        width: K, the number of units for each datum.
        encoder: Indices of the blocks that act on the outputs through z alone.
        decoder: Indices of the other blocks.
    """

    module: str
    width: int
    encoder: tuple[int, ...]
    decoder: tuple[int, ...]

    def plan(self, plan: Plan, numbers: tuple[int, ...]) -> Plan:
        """The plan of a subset of the blocks."""
        return replace(plan, blocks=tuple(plan.blocks[number] for number in numbers))

    def columns(self, observation: Observation) -> Callable[[Tensor, slice], Columns]:
        """A root of M_z for the values of z of some data."""

        def at(z: Tensor, part: slice) -> Columns:
            x, y = take(observation.x, part), observation.y[part]
            matrix = bottleneck_hessian(observation, self.module, z, x, y)
            root = psd.root(matrix.double()).to(z.dtype)
            return Columns.of(root.movedim(-1, 0).reshape(-1, *z.shape))

        return at


def bottleneck_hessian(
    observation: Observation, module: str, z: Float[Tensor, "N *K"], x: Inputs, y: Tensor
) -> Float[Tensor, "N k k"]:
    r"""M_z = J_decᵀ Λ J_dec, from the K columns J_dec e_k. They are derivatives of J_decᵀ u, linear in u.

    Cost: one pass through the network, and about one through the decoder for each unit.
    """
    network = observation.network
    with torch.inference_mode(False), torch.enable_grad(), Unfused():
        leaf = z.clone().to(network.dtype).requires_grad_()
        f = network(x, within=replacing(module, lambda _: leaf.clone()))
        u = torch.zeros_like(f, requires_grad=True)
        (gradient,) = torch.autograd.grad(f, leaf, u, create_graph=True)
        width = z[0].numel()
        units = torch.eye(width, dtype=leaf.dtype, device=leaf.device).reshape(width, 1, *z.shape[1:])
        (jacobian,) = pull(gradient, [u], units.expand(-1, *z.shape))
    assert jacobian is not None
    f, jacobian = f.detach().to(network.state_dtype), jacobian.detach().to(network.state_dtype)
    observation.check(f, y)
    product = output_hessian(observation.likelihood, f, y)(jacobian)
    return torch.einsum("knc,lnc->nkl", jacobian.flatten(2), product.flatten(2))


class _Reached(Exception):
    """Signal that the bottleneck was reached."""


class Until(Network):
    """A network up to the output of one of its modules, which it shares.

    Args:
        network: The whole network.
        module: Name of the module.
    """

    def __init__(self, network: Network, module: str) -> None:
        vars(self).update(vars(network))
        self._whole, self._name = network, module

    def __call__(
        self,
        x: Inputs,
        theta: Mapping[str, Tensor] | None = None,
        within: Within | None = None,
    ) -> Tensor:
        return self._stopped(lambda stopping: self._whole(x, theta, stopping), within)

    def at_leaves(self, x: Inputs, within: Within | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """The output at the mode, and the leaves of its graph."""
        leaves: dict[str, Tensor] = {}

        @contextmanager
        def noting(module: nn.Module) -> Iterator[None]:
            leaves.update((name, module.get_parameter(name)) for name in self.space.names)
            with within(module) if within else nullcontext():
                yield

        return self._stopped(lambda stopping: self._whole.at_leaves(x, stopping), noting), leaves

    def _stopped(self, call: Callable[[Within], object], within: Within | None) -> Tensor:
        """The output of the module, at which a call of the whole network ends."""
        found: list[Tensor] = []

        def stop(output: Tensor) -> Tensor:
            found.append(output)
            raise _Reached

        @contextmanager
        def stopping(module: nn.Module) -> Iterator[None]:
            with replacing(self._name, stop)(module), within(module) if within else nullcontext():
                yield

        try:
            call(stopping)
        except _Reached:
            return found[0]
        raise ValueError(f"the network did not call {self._name!r} for this batch, as it did for the first.")


def replacing(name: str, function: Callable[[Tensor], Tensor]) -> Within:
    """The context of a call in which the output of one module of the network passes through a function."""
    return lambda module: module.get_submodule(name).register_forward_hook(lambda _, __, output: function(output))


def tracking(network: Network, names: set[str]) -> Network:
    """The same network with fewer parameters tracked; it shares the module."""
    part = copy(network)
    part.space = ParameterSpace.of({name: p for name, p in network.parameters.items() if name in names})
    return part


def find_split(network: Network, plan: Plan, x: Inputs, bottleneck: str | None) -> Split | None:
    """Split a network at a named module, or at its narrowest one; None if its outputs are the bottleneck.

    Raises:
        ValueError: no module is narrower than the output with everything before it acting through it, the named
            one does not exist, is called more than once or gives no tensor of one row a datum, or no parameter acts
            through it alone.
    """
    x = take(x, slice(2)) if count(x) > 1 else x
    widths = _widths(network, x)
    if bottleneck is not None:
        choose("bottleneck", bottleneck, widths)
        before, behind = _sides(network, x, bottleneck)
        encoder = _blocks_within(plan, before - behind)
        if not encoder:
            raise ValueError(
                f"no tracked layer acts on the outputs through {bottleneck!r} alone: the layers before it are frozen, "
                f"or act on them along another path too (a skip connection, or shared weights). {ALTERNATIVES}."
            )
        return _split(plan, bottleneck, widths[bottleneck], encoder)
    narrow = sorted((n for n in widths if widths[n] < plan.outputs), key=lambda n: widths[n])
    for name in narrow:
        before, behind = _sides(network, x, name)
        encoder = _blocks_within(plan, before)
        if encoder and not before & behind:
            return _split(plan, name, widths[name], encoder)
    if bottleneck is None and plan.outputs <= BOTTLENECK_OUTPUTS:
        return None
    raise ValueError(
        f"structure='mixed_diag' found no bottleneck: no module has fewer than the {plan.outputs} outputs of the "
        "network with everything before it acting through it alone. Name a module whose output may serve as one with "
        f"osc.structures.MixedDiag(bottleneck=…), or do without. {ALTERNATIVES}."
    )


def _split(plan: Plan, name: str, width: int, encoder: tuple[int, ...]) -> Split:
    return Split(name, width, encoder, tuple(n for n in range(len(plan.blocks)) if n not in encoder))


def _blocks_within(plan: Plan, names: set[str]) -> tuple[int, ...]:
    return tuple(n for n, block in enumerate(plan.blocks) if set(block.names) <= names)


def _widths(network: Network, x: Inputs) -> dict[str, int]:
    """The output sizes for a datum of the modules that are called once, in reverse order of the calls."""
    size, outputs = count(x), dict[str, list[Any]]()

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        return lambda _, __, output: outputs.setdefault(name, []).append(output)

    @contextmanager
    def noting(module: nn.Module) -> Iterator[None]:
        with ExitStack() as hooks:
            for name, layer in module.named_modules():
                if name:
                    hooks.enter_context(layer.register_forward_hook(note(name)))
            yield

    with torch.no_grad():
        network(x, within=noting)
    single = {name: found[0] for name, found in reversed(outputs.items()) if len(found) == 1}
    return {
        name: output[0].numel()
        for name, output in single.items()
        if isinstance(output, Tensor) and output.ndim > 1 and len(output) == size and output.is_floating_point()
    }


def _sides(network: Network, x: Inputs, name: str) -> tuple[set[str], set[str]]:
    """The parameters that act on the output of a module, and those that act on the network's output without it."""
    found: list[Tensor] = []

    def cut(output: Tensor) -> Tensor:
        found.append(output.clone())
        return output.detach()

    with torch.inference_mode(False), torch.enable_grad():
        theta = {n: p.requires_grad_() for n, p in network.parameters.items()}
        f = network(x, theta, replacing(name, cut))
    return _acting(found[0], theta), _acting(f, theta)


def _acting(output: Tensor, theta: dict[str, Tensor]) -> set[str]:
    if not output.requires_grad:
        return set()
    gradients = torch.autograd.grad(output.sum(), list(theta.values()), allow_unused=True, retain_graph=True)
    return {name for name, gradient in zip(theta, gradients, strict=True) if gradient is not None}
