"""p(θ|δ): zero-mean Gaussian priors, by how many precisions they have. One file a prior."""

from osculate.priors._base import Prior as Prior
from osculate.priors.diagonal import Diagonal as Diagonal
from osculate.priors.isotropic import Isotropic as Isotropic
from osculate.priors.layerwise import Layerwise as Layerwise

#: The priors by name, as they are saved and typed.
REGISTRY: dict[str, type[Prior]] = {
    "isotropic": Isotropic,
    "layerwise": Layerwise,
    "diagonal": Diagonal,
}
