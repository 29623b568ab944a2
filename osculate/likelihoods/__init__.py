"""p(y|f): the density of a target given the network's output. One file a likelihood."""

from osculate.likelihoods._base import Likelihood as Likelihood, Link as Link
from osculate.likelihoods.bernoulli import Bernoulli as Bernoulli
from osculate.likelihoods.categorical import Categorical as Categorical
from osculate.likelihoods.gaussian import Gaussian as Gaussian

#: The likelihoods by name, as they are saved and typed.
REGISTRY: dict[str, type[Likelihood]] = {
    "gaussian": Gaussian,
    "categorical": Categorical,
    "bernoulli": Bernoulli,
}
