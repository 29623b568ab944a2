"""p(x|z) and q(z|x): autoencoders, their training, bounds on log p(x), and posteriors over the weights."""

from osculate.autoencoders.autoencoder import (
    REGISTRY as REGISTRY,
    VAE as VAE,
    Autoencoder as Autoencoder,
    build as build,
)
from osculate.autoencoders.codes import (
    CODE_PRIORS as CODE_PRIORS,
    AdversarialCodes as AdversarialCodes,
    CodePosterior as CodePosterior,
    CodePrior as CodePrior,
    FlowCodes as FlowCodes,
    GaussianCodes as GaussianCodes,
    SemiImplicitCodes as SemiImplicitCodes,
    SigmoidCodes as SigmoidCodes,
    SparseBeta as SparseBeta,
    StandardNormal as StandardNormal,
    TwoNormals as TwoNormals,
)
from osculate.autoencoders.elbo import (
    ELBO as ELBO,
    ESTIMATORS as ESTIMATORS,
    BoundSettings as BoundSettings,
    Corruption as Corruption,
    EstimatorReport as EstimatorReport,
    compare_estimators as compare_estimators,
    estimates as estimates,
)
from osculate.autoencoders.distributions import Encoding as Encoding, Reconstruction as Reconstruction
from osculate.autoencoders.representation import Representation as Representation
from osculate.autoencoders.laplacian import LaplacianAutoencoder as LaplacianAutoencoder
from osculate.autoencoders.pictures import (
    LatentMap as LatentMap,
    interpolations as interpolations,
    manifold as manifold,
)
from osculate.autoencoders.code_measures import (
    ActiveUnits as ActiveUnits,
    Distortion as Distortion,
    RateDistortion as RateDistortion,
    active_units as active_units,
    rate_distortion as rate_distortion,
    truncated as truncated,
)
from osculate.autoencoders.annealed import Annealing as Annealing
from osculate.autoencoders.bounds import Bound as Bound, Sandwich as Sandwich, bound as bound, sandwich as sandwich
