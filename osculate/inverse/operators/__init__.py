"""A: linear measurements of an image with their exact adjoints, one file each."""

from osculate.inverse.operators._base import LinearOperator as LinearOperator, require_adjoint as require_adjoint
from osculate.inverse.operators.blur import Blur as Blur
from osculate.inverse.operators.functions import FromFunctions as FromFunctions
from osculate.inverse.operators.matrix import Matrix as Matrix
from osculate.inverse.operators.ray import RayTransform as RayTransform, from_astra as from_astra
from osculate.inverse.operators.sampling import Subsampling as Subsampling
