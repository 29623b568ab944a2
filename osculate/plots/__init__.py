"""Figures: shapes on given axes, and whole figures composed of them.

Shapes: :func:`~osculate.plots.bands.band`, :func:`~osculate.plots.lines.lines`, :func:`~osculate.plots.lines.spread`,
:func:`~osculate.plots.lines.dots`, :func:`~osculate.plots.images.picture`, :func:`~osculate.plots.maps.cells`,
:func:`~osculate.plots.maps.class_map`, :func:`~osculate.plots.scores.histogram`,
:func:`~osculate.plots.scores.reliability`, :func:`~osculate.plots.scores.roc`. Their colours are in
:mod:`osculate.plots.style`. This is the only folder of the library that imports matplotlib. Figures are returned, never
shown or kept globally.
"""

from osculate.checks import require_library as _require_library

_require_library("matplotlib", "figures")

from osculate.plots.bands import (
    Band as Band,
    Draws as Draws,
    band as band,
    band_grid as band_grid,
    function_draws as function_draws,
    regression_bands as regression_bands,
)
from osculate.plots.images import (
    attribution_maps as attribution_maps,
    error_maps as error_maps,
    grey_scale as grey_scale,
    image_grid as image_grid,
    imputations as imputations,
    manifold as manifold,
    most_uncertain as most_uncertain,
    picture as picture,
    reconstructions as reconstructions,
)
from osculate.plots.latent import latent_map as latent_map
from osculate.plots.lines import (
    Bounds as Bounds,
    accuracy_against_labels as accuracy_against_labels,
    course as course,
    dots as dots,
    errors as errors,
    image_calibration as image_calibration,
    lines as lines,
    residuals as residuals,
    sandwich as sandwich,
    spread as spread,
)
from osculate.plots.maps import (
    cells as cells,
    class_map as class_map,
    heat_map as heat_map,
    matrices as matrices,
    probability_maps as probability_maps,
)
from osculate.plots.scores import (
    entropy_histograms as entropy_histograms,
    histogram as histogram,
    reliability as reliability,
    reliability_diagram as reliability_diagram,
    roc as roc,
    roc_curves as roc_curves,
    score_histograms as score_histograms,
    uncertainties as uncertainties,
)
from osculate.plots.style import panels as panels, save as save
