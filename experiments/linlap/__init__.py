"""Linearised Laplace tutorial, and the papers that it cites."""

from experiments.linlap import mackay, uci, marglik, sampling, subnetwork, logistic
from experiments.linlap import em, structures, adapted, stopping, images, uci_classification
