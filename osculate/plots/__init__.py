"""Record -> figure. The only folder that imports matplotlib; figures are returned, never shown or kept globally."""

from osculate.plots.error_maps import error_maps as error_maps
from osculate.plots.few_labels import accuracy_against_labels as accuracy_against_labels
from osculate.plots.functions import Draws as Draws, function_draws as function_draws
from osculate.plots.heat_map import heat_map as heat_map
from osculate.plots.histograms import entropy_histograms as entropy_histograms, score_histograms as score_histograms
from osculate.plots.image_calibration import image_calibration as image_calibration
from osculate.plots.images import image_grid as image_grid, reconstructions as reconstructions
from osculate.plots.latent import latent_map as latent_map
from osculate.plots.imputations import imputations as imputations
from osculate.plots.least_sure import least_sure as least_sure
from osculate.plots.manifold import manifold as manifold
from osculate.plots.maps import probability_maps as probability_maps
from osculate.plots.matrices import matrices as matrices
from osculate.plots.regression import Band as Band, regression_bands as regression_bands
from osculate.plots.reliability import reliability_diagram as reliability_diagram
from osculate.plots.residuals import residuals as residuals
from osculate.plots.roc import roc_curves as roc_curves
from osculate.plots.sandwich import Bounds as Bounds, sandwich as sandwich
from osculate.plots.structures import band_grid as band_grid
from osculate.plots.style import save as save
