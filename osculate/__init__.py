"""Calibrated uncertainty for neural networks by Laplace's method: the pipeline on one screen.

>>> import osculate as osc
>>> model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3))           # f(x; θ), trained
>>> likelihood = osc.likelihoods.Categorical()                                     # p(y|f)
>>> X, Y = torch.randn(60, 2), torch.randint(3, (60,))
>>> q = osc.laplace(model, likelihood, (X, Y))                                     # q(θ), tuned by the evidence
>>> osc.predict(q, X[:5]).probs.shape                                              # p(y|x)
torch.Size([5, 3])
"""

from osculate import (
    autoencoders as autoencoders,
    curvature as curvature,
    data as data,
    evidence as evidence,
    inverse as inverse,
    likelihoods as likelihoods,
    methods as methods,
    metrics as metrics,
    networks as networks,
    posteriors as posteriors,
    predictive as predictive,
    priors as priors,
    structures as structures,
    tasks as tasks,
)
from osculate.evidence import log_evidence as log_evidence, maximise_evidence as maximise_evidence
from osculate.methods import Subnetwork as Subnetwork, laplace as laplace
from osculate.predictive import (
    functional_variance as functional_variance,
    predict as predict,
    sample_functions as sample_functions,
    tune as tune,
)
from osculate.serialization import load as load, save as save
from osculate.training import train as train

__version__ = "0.1.0"
