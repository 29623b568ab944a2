"""p(y|f): the density of a target given the network's output, one file for each likelihood."""

from osculate.likelihoods._base import Likelihood as Likelihood, Link as Link
from osculate.likelihoods.bernoulli import Bernoulli as Bernoulli
from osculate.likelihoods.categorical import Categorical as Categorical
from osculate.likelihoods.continuous_bernoulli import ContinuousBernoulli as ContinuousBernoulli
from osculate.likelihoods.gaussian import Gaussian as Gaussian
from osculate.likelihoods.heteroscedastic import HeteroscedasticGaussian as HeteroscedasticGaussian
from osculate.likelihoods.poisson import Poisson as Poisson
from osculate.likelihoods.student_t import StudentT as StudentT

#: The likelihoods by name, for files and the command line.
REGISTRY: dict[str, type[Likelihood]] = {
    "gaussian": Gaussian,
    "heteroscedastic_gaussian": HeteroscedasticGaussian,
    "student_t": StudentT,
    "categorical": Categorical,
    "bernoulli": Bernoulli,
    "continuous_bernoulli": ContinuousBernoulli,
    "poisson": Poisson,
}
