"""Record -> figure. The only folder that imports matplotlib; figures are returned, never shown or kept globally."""

from osculate.plots.entropy import entropy_histograms as entropy_histograms
from osculate.plots.least_sure import least_sure as least_sure
from osculate.plots.matrices import matrices as matrices
from osculate.plots.regression import Band as Band, regression_bands as regression_bands
from osculate.plots.reliability import reliability_diagram as reliability_diagram
from osculate.plots.scaling import scaling as scaling
from osculate.plots.style import save as save
