"""p(θ|δ): Gaussian priors with one or several precisions. One file per prior."""

from collections.abc import Callable as _Callable

from osculate.priors._base import Prior as Prior
from osculate.priors.centred import Centred as Centred
from osculate.priors.diagonal import Diagonal as Diagonal
from osculate.priors.filters import Filters as Filters, filters_of as filters_of
from osculate.priors.fan_in import fan_in as fan_in
from osculate.priors.grouped import Grouped as Grouped
from osculate.priors.isotropic import Isotropic as Isotropic
from osculate.priors.layerwise import Layerwise as Layerwise
from osculate.priors.scale_mixture import ScaleMixture as ScaleMixture

#: The priors by the names in files: each is built from its settings and a precision.
REGISTRY: dict[str, _Callable[..., Prior]] = {
    "isotropic": Isotropic,
    "layerwise": Layerwise,
    "grouped": Grouped,
    "diagonal": Diagonal,
    "filters": Filters,
}
