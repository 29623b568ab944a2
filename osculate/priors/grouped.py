"""One precision for each named group of parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.inputs import Inputs
from osculate.parameters import ParameterSpace
from osculate.priors._base import Prior, positive
from osculate.priors._scales import normalised_groups
from osculate.registry import choose


class Grouped(Prior):
    r"""θ_g ~ N(0, δ_g⁻¹ I) for named groups g of parameter tensors.

    Args:
        groups: The parameter or module names of each group; a module includes all parameters below it. Every
            parameter of the posterior is in exactly one group.
        precision: A number for all groups, a tensor (G,) in the order of the groups, or a mapping from their names.

    Raises:
        ValueError: a precision is not positive, or their number is not that of the groups; no group; on binding, a
            name that the network does not have, and parameters in no group or in several.

    >>> space = ParameterSpace.of({"0.weight": torch.zeros(2), "0.bias": torch.zeros(1), "1.weight": torch.zeros(1)})
    >>> prior = Grouped({"first": ["0"], "last": ["1.weight"]}, {"first": 2.0, "last": 5.0})
    >>> prior.vector(space)
    tensor([2., 2., 2., 5.])
    """

    def __init__(
        self, groups: Mapping[str, Sequence[str]], precision: float | Tensor | Mapping[str, float] = 1.0
    ) -> None:
        if not isinstance(groups, Mapping) or not groups:
            raise ValueError(
                f"Grouped takes a mapping from group names to the names of their parameters or modules, got {groups!r}."
            )
        self.groups = {
            name: (members,) if isinstance(members, str) else tuple(members) for name, members in groups.items()
        }
        if isinstance(precision, Mapping):
            for name in precision:
                choose("group of the prior", name, self.groups)
            if missing := [name for name in self.groups if name not in precision]:
                raise ValueError(f"the prior gives no precision for the group {', '.join(missing)}: name every group.")
            precision = torch.tensor([precision[name] for name in self.groups])
        self.precision = positive(precision)
        if self.precision.ndim and self.precision.shape != (len(self.groups),):
            raise ValueError(
                f"Grouped has precisions of shape {tuple(self.precision.shape)}, and {len(self.groups)} groups: "
                f"{', '.join(self.groups)}."
            )

    @classmethod
    def normalised(
        cls, model: nn.Module, x: Inputs, precision: float | Tensor | Mapping[str, float] = 1.0
    ) -> "Grouped":
        r"""One precision for each group of parameters whose scale is normalised away, and one for all others.

        .. math:: f(\theta' + k \theta''_g, x) = f(\theta' + \theta''_g, x) \quad \text{for all } k > 0

        A layer whose output goes into a normalisation (over the batch, a layer, or a group of channels) makes such a
        group θ''_g, its weight and its bias together. Layers whose outputs are added up before they are normalised
        form one group: those that write into the residual stream of a pre-activation network or of a transformer.
        Scales and shifts of the normalisations, and all parameters whose scale affects the output of the network or
        another operation, share the group "unnormalised". With one precision for each, tuned at the mode of the linear
        model, the posterior does not depend on the scales of the normalised weights. [antoran2022]

        Groups are found in one forward pass, which traces for every tensor the product of parameters to which it is
        proportional. Layers multiply; sums need equal factors on both sides (and join different ones in one group);
        ReLU, pooling and reshaping keep factors; a normalisation removes them, and any other operation is assumed to
        depend on them. A group may therefore be missed after an unknown operation, but no group is reported that is not
        normalised. Running statistics of a batch normalisation are treated as those of the batch.

        Args:
            model: The network; it is left as it is.
            x: Example inputs, at least one.
            precision: A number or a tensor, see :class:`Grouped`.

        Returns:
            Groups by the name of their first layer, and "unnormalised", over the parameters that require gradients.

        Cost: a copy of the network and one forward pass.

        >>> net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
        >>> Grouped.normalised(net, torch.randn(3, 2)).groups
        {'0': ('0.weight', '0.bias'), 'unnormalised': ('1.weight', '1.bias', '3.weight', '3.bias')}
        """
        return cls(normalised_groups(model, x), precision)

    @property
    def settings(self) -> dict[str, Any]:
        return {"groups": {name: list(members) for name, members in self.groups.items()}}

    def bind(self, space: ParameterSpace) -> "Grouped":
        shape = (len(self.groups),)
        if sorted(name for members in self.groups.values() for name in members) == sorted(space.names):
            return self if self.precision.shape == shape else Grouped(self.groups, self.precision.expand(shape))
        found: dict[str, tuple[str, ...]] = {}
        for group, members in self.groups.items():
            chosen: set[str] = set()
            for member in members:
                below = [name for name in space.names if name == member or name.startswith(f"{member}.")]
                if not below:
                    choose("parameter or module of the prior", member, space.names)
                chosen.update(below)
            found[group] = tuple(name for name in space.names if name in chosen)
        owners = {name: [g for g, members in found.items() if name in members] for name in space.names}
        if missing := [name for name, groups in owners.items() if not groups]:
            raise ValueError(f"no group of the prior holds {', '.join(missing)}: put every parameter into a group.")
        if doubled := [f"{name} ({', '.join(groups)})" for name, groups in owners.items() if len(groups) > 1]:
            raise ValueError(f"several groups of the prior hold {'; '.join(doubled)}: leave each parameter in one.")
        return Grouped(found, self.precision.expand(shape))

    def _owners(self, space: ParameterSpace) -> Tensor:
        """The index of the group of each tensor."""
        groups = self.bind(space).groups
        index = {name: n for n, members in enumerate(groups.values()) for name in members}
        return torch.tensor([index[name] for name in space.names], device=self.precision.device)

    def per_tensor(self, space: ParameterSpace) -> Float[Tensor, " T"]:
        return self.bind(space).precision[self._owners(space)]

    def members(self, space: ParameterSpace) -> dict[str, tuple[str, ...]]:
        return self.bind(space).groups

    def pooled(self, totals: Float[Tensor, " T"], space: ParameterSpace) -> Float[Tensor, " G"]:
        return totals.new_zeros(len(self.groups)).index_add(0, self._owners(space).to(totals.device), totals)
