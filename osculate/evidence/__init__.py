"""log p(D|δ): how well a model with this prior explains the data, and the prior that does it best."""

from osculate.evidence.em import expectation_maximisation as expectation_maximisation
from osculate.evidence.laplace import effective_parameters as effective_parameters, log_evidence as log_evidence
from osculate.evidence.maximise import maximise_evidence as maximise_evidence
from osculate.evidence.pathwise import pathwise_draws as pathwise_draws
from osculate.evidence.predcp import PredCP as PredCP
from osculate.evidence.refine import (
    TEMPERATURE as TEMPERATURE,
    TRUST as TRUST,
    calibrated as calibrated,
    refine as refine,
)
from osculate.evidence.mode import (
    Newton as Newton,
    QuasiNewton as QuasiNewton,
    Stochastic as Stochastic,
    linear_mode as linear_mode,
)
from osculate.evidence.variational import linear_elbo as linear_elbo
from osculate.evidence.elbo import EvidenceBound as EvidenceBound, elbo as elbo
