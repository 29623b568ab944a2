"""y = A f + ε: images from few measurements, with error bars, by a linearised deep image prior."""

from osculate.inverse import baselines as baselines, operators as operators, scores as scores, stopping as stopping
from osculate.inverse.classical import (
    brightness as brightness,
    filtered_back_projection as filtered_back_projection,
    tikhonov as tikhonov,
    tv_reconstruction as tv_reconstruction,
)
from osculate.inverse.dip import DeepImagePrior as DeepImagePrior, FittedImage as FittedImage
from osculate.inverse.evidence import (
    Observed as Observed,
    PredCP as PredCP,
    log_evidence as log_evidence,
    tune_filters as tune_filters,
)
from osculate.inverse.filters import FilterPrior as FilterPrior
from osculate.inverse.image_distributions import (
    DrawnImage as DrawnImage,
    GaussianImage as GaussianImage,
    ImageDistribution as ImageDistribution,
    IndependentImage as IndependentImage,
)
from osculate.inverse.linearised import LinearisedImage as LinearisedImage, linear_mode as linear_mode
from osculate.inverse.operators import (
    Blur as Blur,
    FromFunctions as FromFunctions,
    LinearOperator as LinearOperator,
    Matrix as Matrix,
    RayTransform as RayTransform,
    Subsampling as Subsampling,
    from_astra as from_astra,
)
from osculate.inverse.posterior import (
    drawn_posterior as drawn_posterior,
    exact_posterior as exact_posterior,
    image_noise as image_noise,
)
from osculate.inverse.reconstruct import (
    ErrorBars as ErrorBars,
    ImageReconstruction as ImageReconstruction,
    LinearisedModel as LinearisedModel,
    reconstruct as reconstruct,
    with_error_bars as with_error_bars,
)
from osculate.inverse.classical import total_variation as total_variation
