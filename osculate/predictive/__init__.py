"""p(y*|x*): linearised or sampled predictives, and links from logits to probabilities."""

from osculate.predictive import link as link
from osculate.predictive.predict import predict as predict, sample_functions as sample_functions
from osculate.predictive.tuning import tune as tune
from osculate.predictive.variance import functional_variance as functional_variance
