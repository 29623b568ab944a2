"""L2M [perone2021]."""

from experiments.l2m import figure1, uci, classification
