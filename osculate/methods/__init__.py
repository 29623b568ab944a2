"""How a posterior is reached. One file a method."""

from osculate.methods.dropout import MCDropout as MCDropout
from osculate.methods.ensemble import DeepEnsemble as DeepEnsemble
from osculate.methods.hmc import HMC as HMC
from osculate.methods.laplace import laplace as laplace
from osculate.methods.levenberg_marquardt import LevenbergMarquardt as LevenbergMarquardt
from osculate.methods.map import MAP as MAP
from osculate.methods.marginal_likelihood import (
    EvidenceUpdates as EvidenceUpdates,
    MarginalLikelihood as MarginalLikelihood,
)
from osculate.methods.online_laplace import OnlineLaplace as OnlineLaplace
from osculate.methods.online_updates import OnlineUpdates as OnlineUpdates
from osculate.methods.subnetwork import Subnetwork as Subnetwork
from osculate.methods.swag import SWAG as SWAG
