"""An ensemble with a fixed random function in each member, so that members differ away from the data."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from osculate.likelihoods import Likelihood
from osculate.methods._base import MakeNetwork, PriorLike, require_network
from osculate.methods.ensemble import MEMBERS, DeepEnsemble
from osculate.networks import WithPrior
from osculate.parameters import frozen_copy
from osculate.posteriors.samples import listed
from osculate.randomness import seeded


class RandomizedPriors(DeepEnsemble):
    r"""M members f_m = g_m + β p_m, where p_m is an untrained network with random weights. [osband2018]

    .. math:: \theta_m = \operatorname{argmax}_\theta \; \log p(D \mid g_\theta + \beta p_m) + \log p(\theta)

    The members of a plain ensemble may agree far from the data. Here g_m learns to cancel p_m at the data only, and
    elsewhere the spread of the p_m remains as the prior over functions. p(θ) regularises g_m towards zero, as in the
    paper, and not towards its initial weights.

    All members see the same data. For a linear model with β = 1 and the weights of p_m drawn from p(θ), the members
    have the mean of the posterior, but the covariance Σ Λ₀ Σ in place of Σ (Λ₀ is the prior precision): correct in
    directions without data, too small where the noise of the targets matters. The paper's noise on the data (a
    bootstrap or noise on the targets, which gives Σ) must be the same whenever a datum is seen; as batches do not
    identify their data, it is left out. To include it, train ``MAP(WithPrior(network, prior_network), likelihood)`` for
    each member on its own data, and collect the networks in ``osc.posteriors.Ensemble``.

    The result is an ensemble of networks ``osc.networks.WithPrior(g_m, p_m, β)``: to load it from a file,
    pass ``osc.networks.WithPrior(network, another_network)``.

    Args:
        models: The networks g_m, of one architecture and with separate weights; training changes them in place.
        likelihood: p(y|f).
        prior: p(θ) of each g_m: a precision, or an object of ``osculate.priors``.
        scale: β, the factor on the prior functions.
        prior_networks: The p_m, one for each member; they are copied. By default copies of the models, reinitialised
            by the layers' ``reset_parameters()``.
        seed: Seed of the weights of default prior networks.

    Raises:
        TypeError: one of the networks is not a module, or ``prior`` is neither a number nor a prior.
        ValueError: as for :class:`DeepEnsemble`; β is negative or not finite; the numbers of prior networks and members
            differ; or no ``reset_parameters()`` reinitialises some parameter.

    Cost: that of an ensemble, plus M forward passes of the prior networks.

    >>> import osculate as osc
    >>> method = RandomizedPriors([nn.Linear(2, 1) for _ in range(5)], osc.likelihoods.Gaussian(), scale=2.0)
    >>> data = torch.randn(20, 2), torch.randn(20, 1)
    >>> done = osc.train(method, data, epochs=2, progress=False)
    >>> done.posterior, osc.predict(done, data[0]).mean.shape
    (Ensemble(members=5, likelihood=Gaussian), torch.Size([20, 1]))
    """

    name = "randomized_priors"
    adds_prior_network = True

    @classmethod
    def build(
        cls,
        network: MakeNetwork,
        likelihood: Likelihood,
        prior: PriorLike = 1.0,
        members: int = MEMBERS,
        **options: Any,
    ) -> "RandomizedPriors":
        """Make the ensemble of the first networks, with the following ones as prior networks."""
        networks = [network(number) for number in range(2 * members)]
        return cls(networks[:members], likelihood, prior, prior_networks=networks[members:], **options)

    def __init__(
        self,
        models: Iterable[nn.Module],
        likelihood: Likelihood,
        prior: PriorLike = 1.0,
        scale: float = 1.0,
        prior_networks: Iterable[nn.Module] | None = None,
        seed: int = 0,
    ) -> None:
        networks = listed(models, type(self).__name__)
        for network in networks:
            require_network(network, likelihood)
        if prior_networks is None:  # copies with other random weights, the same on every device
            with seeded(seed, torch.device("cpu")), torch.no_grad():
                priors = [_redrawn(network) for network in networks]
        else:
            priors = list(prior_networks)
        if len(priors) != len(networks):
            raise ValueError(
                f"{len(networks)} members need as many prior networks, got {len(priors)}: pass one for each member."
            )
        super().__init__([WithPrior(*both, scale) for both in zip(networks, priors, strict=True)], likelihood, prior)
        self.scale = scale

    def choices(self) -> Mapping[str, Any]:
        """The choices of each member, and β."""
        return {**super().choices(), "scale": self.scale}


def _redrawn(model: nn.Module) -> nn.Module:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    network = frozen_copy(model).cpu()
    floating = {name: p for name, p in network.named_parameters() if p.is_floating_point()}
    for parameter in floating.values():
        parameter.fill_(torch.nan)  # marks the parameters that are not reinitialised
    for layer in reversed(list(network.modules())):  # a network's own initialisation has the last word
        if callable(reset := getattr(layer, "reset_parameters", None)):
            reset()
    for name, parameter in floating.items():
        if bool(parameter.isnan().any()):
            raise ValueError(
                f"no reset_parameters() reinitialises the parameter {name!r}, so that there is no default prior "
                "network: pass prior_networks, one freshly built network for each member."
            )
    return network.to(device)
