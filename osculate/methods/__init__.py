"""Methods that train a network and return a posterior, one file for each."""

from osculate.methods._base import FullBatch as FullBatch, Method as Method, Option as Option
from osculate.methods.dropout import MCDropout as MCDropout
from osculate.methods.ensemble import DeepEnsemble as DeepEnsemble
from osculate.methods.ivon import IVON as IVON, NaturalSteps as NaturalSteps
from osculate.methods.l2m import L2M as L2M
from osculate.methods.hmc import HMC as HMC
from osculate.methods.laplace import laplace as laplace
from osculate.methods.planning import FitPlan as FitPlan, plan as plan
from osculate.methods.levenberg_marquardt import LevenbergMarquardt as LevenbergMarquardt
from osculate.methods.map import MAP as MAP
from osculate.methods.marginal_likelihood import (
    EvidenceUpdates as EvidenceUpdates,
    MarginalLikelihood as MarginalLikelihood,
)
from osculate.methods.mean_field_vi import MeanFieldVI as MeanFieldVI, WarmUp as WarmUp
from osculate.methods.online_laplace import OnlineLaplace as OnlineLaplace
from osculate.methods.online_laplace import OnlineUpdates as OnlineUpdates
from osculate.methods.randomized_priors import RandomizedPriors as RandomizedPriors
from osculate.methods.subnetwork import Subnetwork as Subnetwork
from osculate.methods.swag import SWAG as SWAG
from osculate.methods.temperature_scaling import TemperatureScaling as TemperatureScaling
from osculate.methods.variational_laplace import VariationalLaplace as VariationalLaplace
from osculate.methods.variational_laplace import VariationalUpdates as VariationalUpdates
from osculate.methods.vogn import VOGN as VOGN

#: The methods by name: every class above that has a name.
REGISTRY: dict[str, type[Method]] = {
    kind.name: kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, Method) and "name" in vars(kind)
}
