"""p(x|z) and q(z|x): networks with a bottleneck, and what a posterior over their weights says about code and image."""

from osculate.autoencoders.autoencoder import VAE as VAE, Autoencoder as Autoencoder
from osculate.autoencoders.build import REGISTRY as REGISTRY, build as build
from osculate.autoencoders.code_posteriors import (
    CodePosterior as CodePosterior,
    GaussianCodes as GaussianCodes,
    SigmoidCodes as SigmoidCodes,
)
from osculate.autoencoders.code_priors import (
    CODE_PRIORS as CODE_PRIORS,
    CodePrior as CodePrior,
    SparseBeta as SparseBeta,
    StandardNormal as StandardNormal,
    TwoNormals as TwoNormals,
)
from osculate.autoencoders.corruption import Corruption as Corruption
from osculate.autoencoders.drawn import Encoding as Encoding, Reconstruction as Reconstruction
from osculate.autoencoders.elbo import ELBO as ELBO, BoundSettings as BoundSettings
from osculate.autoencoders.estimators import (
    ESTIMATORS as ESTIMATORS,
    EstimatorReport as EstimatorReport,
    compare_estimators as compare_estimators,
    estimates as estimates,
)
from osculate.autoencoders.flow_codes import FlowCodes as FlowCodes
from osculate.autoencoders.implicit_codes import (
    AdversarialCodes as AdversarialCodes,
    SemiImplicitCodes as SemiImplicitCodes,
)
from osculate.autoencoders.laplacian import LaplacianAutoencoder as LaplacianAutoencoder
from osculate.autoencoders.pictures import interpolations as interpolations, manifold as manifold
from osculate.autoencoders.plane import LatentMap as LatentMap
from osculate.autoencoders.representation import Representation as Representation
from osculate.autoencoders.truncation import (
    Distortion as Distortion,
    RateDistortion as RateDistortion,
    rate_distortion as rate_distortion,
    truncated as truncated,
)
from osculate.autoencoders.active_units import ActiveUnits as ActiveUnits, active_units as active_units
from osculate.autoencoders.annealed import Annealing as Annealing
from osculate.autoencoders.bounds import Bound as Bound, bound as bound
from osculate.autoencoders.sandwich import Sandwich as Sandwich, sandwich as sandwich
