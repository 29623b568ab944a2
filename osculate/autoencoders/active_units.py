"""Which numbers of a code an encoder uses."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from osculate.autoencoders.autoencoder import Autoencoder
from osculate.autoencoders.bounds import at_mean
from osculate.autoencoders.checks import require_inputs, require_some
from osculate.autoencoders.representation import Representation
from osculate.checks import require_positive
from osculate.parameters import Network


@dataclass(frozen=True, eq=False)
class ActiveUnits:
    """Numbers of a code whose mean varies over data.

    Args:
        variances: of E_q z_k over the data.
        threshold: above which a number counts as active.
    """

    variances: Float[Tensor, " K"]
    threshold: float

    @property
    def active(self) -> Bool[Tensor, " K"]:
        """Which."""
        return self.variances > self.threshold

    @property
    def count(self) -> int:
        """How many."""
        return int(self.active.sum())

    def __repr__(self) -> str:
        return f"ActiveUnits(count={self.count} of {len(self.variances)}, threshold={self.threshold:g})"


@torch.no_grad()
def active_units(
    q: Any, x: Shaped[Tensor, "N *D"], threshold: float = 0.01, batch_size: int | None = None
) -> ActiveUnits:
    r"""How many numbers of the code an encoder uses. [burda2016, section 5.2]

    .. math:: \operatorname{Cov}_x\big(\operatorname{E}_{q(z|x)} z_k\big) > 0.01

    A number that the encoder leaves at the prior has the same mean for all data.

    Args:
        q: an :class:`Autoencoder` or :class:`VAE`, a posterior over one (its mean is taken), or what ``osc.train``
            returned.
        x: data, at least two.
        threshold: of the variance.
        batch_size: data at a time; by default all at once.

    Raises:
        TypeError: no autoencoder, or data that are not floating.
        ValueError: fewer than two data, NaN among them, or a threshold that is not positive.

    Cost: a pass of the encoder.

    >>> from osculate.autoencoders import VAE, active_units
    >>> net = VAE(nn.Linear(6, 4), nn.Linear(2, 6))
    >>> with torch.no_grad():
    ...     net.encoder.weight[1] = 0.0
    >>> active_units(net, torch.randn(50, 6))
    ActiveUnits(count=1 of 2, threshold=0.01)
    """
    require_inputs(x)
    require_positive("the threshold", threshold)
    require_some(batch_size=batch_size)
    if len(x) < 2:
        raise ValueError("a variance over data needs at least two of them: pass more rows.")
    if isinstance(q, Autoencoder):
        network = Network(q, ())
        network.module.eval()
    else:
        network = at_mean(Representation(q).posterior)
    x = x.to(network.device, network.dtype)
    means = torch.cat([network({"centre": part}) for part in x.split(batch_size or len(x))])
    if not bool(means.isfinite().all()):
        raise FloatingPointError("the encoder gives NaN or infinite codes: a weight is, or it has diverged.")
    return ActiveUnits(means.double().var(0), threshold)
