"""Record -> figure. The only folder that imports matplotlib; figures are returned, never shown or kept globally."""

from osculate.plots.adapted import adapted as adapted
from osculate.plots.against_map import against_map as against_map
from osculate.plots.curves import curves as curves
from osculate.plots.curvatures import curvatures_and_scores as curvatures_and_scores
from osculate.plots.dots import dots as dots
from osculate.plots.error_maps import error_maps as error_maps
from osculate.plots.evidence import evidence_of_widths as evidence_of_widths
from osculate.plots.few_labels import accuracy_against_labels as accuracy_against_labels
from osculate.plots.functions import Draws as Draws, function_draws as function_draws
from osculate.plots.heat_map import heat_map as heat_map
from osculate.plots.histograms import entropy_histograms as entropy_histograms, score_histograms as score_histograms
from osculate.plots.image_calibration import image_calibration as image_calibration
from osculate.plots.images import image_grid as image_grid, reconstructions as reconstructions
from osculate.plots.latent import latent_map as latent_map
from osculate.plots.imputations import imputations as imputations
from osculate.plots.learned_precisions import learned_precisions as learned_precisions
from osculate.plots.least_sure import least_sure as least_sure
from osculate.plots.logistic import logistic_planes as logistic_planes
from osculate.plots.manifold import manifold as manifold
from osculate.plots.maps import probability_maps as probability_maps
from osculate.plots.matrices import matrices as matrices
from osculate.plots.method_scores import method_scores as method_scores
from osculate.plots.multipliers import multipliers as multipliers
from osculate.plots.posteriors import posteriors as posteriors
from osculate.plots.predictives import Predictives as Predictives, predictives as predictives
from osculate.plots.rate_distortion import rate_distortion as rate_distortion
from osculate.plots.regression import Band as Band, regression_bands as regression_bands
from osculate.plots.reliability import reliability_diagram as reliability_diagram
from osculate.plots.residuals import residuals as residuals
from osculate.plots.roc import roc_curves as roc_curves
from osculate.plots.samples import error_curves as error_curves
from osculate.plots.sandwich import Bounds as Bounds, sandwich as sandwich
from osculate.plots.scaling import scaling as scaling
from osculate.plots.shades import Shades as Shades, shades as shades
from osculate.plots.structures import band_grid as band_grid
from osculate.plots.style import save as save
from osculate.plots.temperature import against_temperature as against_temperature
from osculate.plots.subnetworks import subnetworks as subnetworks
