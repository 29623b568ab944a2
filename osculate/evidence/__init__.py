"""log p(D|δ): how well a model with this prior explains the data, and the prior that does it best."""

from osculate.evidence.laplace import effective_parameters as effective_parameters, log_evidence as log_evidence
from osculate.evidence.maximise import maximise_evidence as maximise_evidence
