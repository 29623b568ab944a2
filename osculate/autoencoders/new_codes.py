"""Where the codes of new images are drawn from."""

from functools import cached_property

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from osculate.autoencoders.autoencoder import VAE, Autoencoder
from osculate.autoencoders.checks import require_inputs
from osculate.posteriors import Posterior

#: Data at a time.
ROWS = 500


class NewCodes:
    """The prior of a VAE without data, else the Gaussian with the moments of the codes of some data at the mode.

    Args:
        posterior: over the network.
        model: the network.
        data: x, encoded when codes are drawn for the first time; None for none.
    """

    def __init__(self, posterior: Posterior, model: Autoencoder, data: Shaped[Tensor, "N *D"] | None) -> None:
        self._posterior, self._model, self._data = posterior, model, data

    def draw(self, n: int, generator: torch.Generator | None) -> Float[Tensor, "n K"]:
        """Codes, on the device of the generator.

        Raises:
            ValueError: no data, and no VAE; a VAE that does not say how long its codes are.
        """
        on = torch.device("cpu") if generator is None else generator.device
        if self._data is None:
            if not isinstance(self._model, VAE):
                raise ValueError(
                    "an autoencoder does not say how its codes are distributed: make the representation with codes=x, "
                    "data whose codes are like those wanted."
                )
            return self._model.prior.sample(n, self._model.code_size(), generator)
        mean, root = self._moments
        white = torch.randn(n, len(mean), generator=generator, dtype=mean.dtype, device=on).cpu()
        return mean + white @ root.T

    @cached_property
    def _moments(self) -> tuple[Float[Tensor, " K"], Float[Tensor, "K K"]]:
        """The mean, and the Cholesky factor of the covariance."""
        assert self._data is not None
        require_inputs(self._data)
        network = self._posterior.network
        parts = self._data.split(ROWS)
        raw = [network({"encode": part.to(network.device, network.dtype)}).detach() for part in parts]
        z = self._model.centre(torch.cat(raw)).double().cpu()
        centred = z - z.mean(0)
        covariance = centred.T @ centred / max(1, len(z) - 1) + 1e-9 * torch.eye(z.shape[1], dtype=z.dtype)
        return z.mean(0), torch.linalg.cholesky(covariance)
