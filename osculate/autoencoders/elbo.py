"""The evidence lower bound of a variational autoencoder as a method of training."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.autoencoders.autoencoder import VAE
from osculate.inputs import Inputs
from osculate.likelihoods import Likelihood
from osculate.methods import MAP
from osculate.priors import Prior


class ELBO(MAP):
    r"""Train a VAE on the bound with the analytic divergence. [kingma2014, eq. 10]

    .. math:: \mathcal L(x) = \operatorname{E}_{q(z|x)} \log p(x \mid z)
              + \tfrac12 \textstyle\sum_k \big( 1 + \log \sigma_k^2 - \mu_k^2 - \sigma_k^2 \big)

    The loss is -(1/B) Σ_b L(x_b) - (1/N) log p(θ), in nats, with one draw of z for each datum.

    Args:
        model: the network; training changes it in place.
        likelihood: p(x|z).
        prior: p(θ).

    Raises:
        TypeError: ``model`` is no :class:`VAE`.

    >>> from osculate.autoencoders import ELBO, VAE
    >>> x = torch.rand(20, 6)
    >>> method = ELBO(VAE(nn.Linear(6, 4), nn.Linear(2, 6)), osc.likelihoods.Gaussian(0.1))
    >>> osc.train(method, (x, x), epochs=1, progress=False).posterior.ways
    ('mode',)
    """

    def __init__(self, model: VAE, likelihood: Likelihood, prior: float | Prior = 1.0) -> None:
        if not isinstance(model, VAE):
            raise TypeError(f"ELBO trains an osc.autoencoders.VAE, got {type(model).__name__}.")
        super().__init__(model, likelihood, prior)

    def choices(self) -> Mapping[str, Any]:
        """And what is descended."""
        return {**super().choices(), "objective": "evidence lower bound"}

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """-(1/B) Σ_b L(x_b) - (1/N) log p(θ); y is what is reconstructed, x itself as a rule."""
        assert isinstance(self.model, VAE)
        assert isinstance(x, Tensor)
        bound = self._bound(x, y)
        learned = {name: value for name, value in self.model.named_parameters() if value.requires_grad}
        return -bound.mean() - self.prior.log_prob(learned) / num_data

    def _bound(self, x: Tensor, y: Tensor) -> Float[Tensor, " B"]:
        model = self.model
        assert isinstance(model, VAE)
        mean, log_variance = model.code(x).chunk(2, 1)
        z = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
        f = model(decode=z)
        self.likelihood.check(f, y)
        divergence = 0.5 * (log_variance.exp() + mean.square() - 1 - log_variance).sum(1)
        return self.likelihood.log_prob(f, y) - divergence

    def log_prob(self, x: Inputs, y: Tensor) -> Float[Tensor, " B"]:
        """The bound on log p(x), by one draw."""
        assert isinstance(x, Tensor)
        return self._bound(x, y)
