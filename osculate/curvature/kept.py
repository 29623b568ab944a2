"""Plans that are made once for a network and kept as long as it lives."""

from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from osculate.curvature.plan import FIRST, Plan, make_plan
from osculate.curvature.rules import RULES
from osculate.curvature.trace import Alone, pass_alone
from osculate.inputs import Inputs, take, tensors
from osculate.parameters import Network
from osculate.tensorfiles import digest

#: Plans kept for one network, the newest ones: for several kinds of inputs.
KEPT = 4


@dataclass(frozen=True)
class _Kept:
    """A plan without its positions, which take twice the memory of the network.

    Attributes:
        about: All that the plan depends on.
        plan: The plan; its blocks have no positions.
        positions: Shape of the positions of each block, and runs of equal steps between them.
    """

    about: tuple
    plan: Plan
    positions: tuple[tuple[torch.Size, Tensor, Tensor], ...]

    @classmethod
    def of(cls, about: tuple, plan: Plan) -> "_Kept":
        """A plan, packed."""
        each = [block.positions for block in plan.blocks]
        steps = [torch.diff(p.flatten(), prepend=p.new_zeros(1)).unique_consecutive(return_counts=True) for p in each]
        bare = tuple(replace(block, positions=torch.empty(0)) for block in plan.blocks)
        return cls(about, replace(plan, blocks=bare), tuple((p.shape, *s) for p, s in zip(each, steps, strict=True)))

    def unpacked(self) -> Plan:
        """The plan, with positions of its own."""
        blocks = [
            replace(block, positions=steps.repeat_interleave(counts).cumsum(0).reshape(shape))
            for block, (shape, steps, counts) in zip(self.plan.blocks, self.positions, strict=True)
        ]
        return replace(self.plan, blocks=tuple(blocks))


#: By the first tracked parameter of the user's module: copies of the module have others, and no plan.
_PLANS: MutableMapping[Any, tuple[_Kept, ...]] = WeakIdKeyDictionary()
_LOCK = Lock()


def kept_plan(network: Network, x: Inputs, alone: Alone | None = None) -> Plan:
    """The plan of :func:`make_plan`, made again where anything that it depends on is not as before.

    Args:
        network: The network.
        x: A batch of inputs.
        alone: The pass of the first of them, where it was made already.

    Raises:
        ValueError: as in :func:`make_plan`.

    Cost: a forward pass of one datum, the first time also that of :func:`make_plan`.
    """
    alone = alone or pass_alone(network, x)
    if (origin := network.origin) is None:
        return make_plan(network, x, alone)
    about = _about(network, x, alone)
    with _LOCK:
        kept = _PLANS.get(origin, ())
    found = next((each for each in kept if each.about == about), None)
    if found is not None:
        return found.unpacked()
    plan = make_plan(network, x, alone)
    new = _Kept.of(about, plan)
    with _LOCK:
        _PLANS[origin] = (new, *_PLANS.get(origin, ()))[:KEPT]
    return plan


def _about(network: Network, x: Inputs, alone: Alone) -> tuple:
    """All that a plan depends on; where operations read values, the first data belong to it."""
    kind = network.device.type
    autocast = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind)
    rules = frozenset((operation, rule.rows, rule.parts) for operation, rule in RULES.items())
    first = {name: tensor.cpu() for name, tensor in tensors(take(x, slice(FIRST))).items()} if alone.reads else {}
    return network.space, network.versions, network.eps, autocast, rules, alone.text, digest({}, first)
