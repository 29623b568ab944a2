"""y = A f + ε: images from few measurements, with error bars, by a linearised deep image prior."""

from osculate.inverse import baselines as baselines, operators as operators, scores as scores, stopping as stopping
from osculate.inverse.classical import (
    brightness as brightness,
    filtered_back_projection as filtered_back_projection,
    tikhonov as tikhonov,
    tv_reconstruction as tv_reconstruction,
)
from osculate.inverse.dip import DeepImagePrior as DeepImagePrior, FittedImage as FittedImage
from osculate.inverse.image_noise import image_noise as image_noise
from osculate.inverse.image_posterior import LinearisedImage as LinearisedImage
from osculate.inverse.operators import (
    Blur as Blur,
    FromFunctions as FromFunctions,
    LinearOperator as LinearOperator,
    Matrix as Matrix,
    RayTransform as RayTransform,
    Subsampling as Subsampling,
    from_astra as from_astra,
)
from osculate.inverse.reconstruct import (
    ErrorBars as ErrorBars,
    ImageReconstruction as ImageReconstruction,
    reconstruct as reconstruct,
    with_error_bars as with_error_bars,
)
from osculate.inverse.classical import total_variation as total_variation
