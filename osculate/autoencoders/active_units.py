"""Active units: the code dimensions that an encoder uses."""

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
    """Code dimensions whose mean varies over data.

    Args:
        variances: the variance of E_q z_k over the data, for each dimension.
        threshold: the variance above which a dimension counts as active.
    """

    variances: Float[Tensor, " K"]
    threshold: float

    @property
    def active(self) -> Bool[Tensor, " K"]:
        """True for each active dimension."""
        return self.variances > self.threshold

    @property
    def count(self) -> int:
        """The number of active dimensions."""
        return int(self.active.sum())

    def __repr__(self) -> str:
        return f"ActiveUnits(count={self.count} of {len(self.variances)}, threshold={self.threshold:g})"


@torch.no_grad()
def active_units(
    q: Any, x: Shaped[Tensor, "N *D"], threshold: float = 0.01, batch_size: int | None = None
) -> ActiveUnits:
    r"""Count the code dimensions that an encoder uses. [burda2016, section 5.2]

    .. math:: \operatorname{Cov}_x\big(\operatorname{E}_{q(z|x)} z_k\big) > 0.01

    A dimension that the encoder leaves at the prior has the same mean for all data.

    Args:
        q: an :class:`Autoencoder` or :class:`VAE`, a posterior over one (its mean is taken), or the result of
            ``osc.train``.
        x: data, at least two.
        threshold: smallest variance of an active dimension.
        batch_size: rows at a time; by default all at once.

    Raises:
        TypeError: ``q`` is not over an autoencoder, or the data are not floating point.
        ValueError: fewer than two rows, NaN in them, or a threshold that is not positive.

    Cost: one pass of the encoder over the data.

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
        raise ValueError(f"a variance over data needs at least two rows, got {len(x)}: pass more.")
    if isinstance(q, Autoencoder):
        network = Network(q, ())
        network.module.eval()
    else:
        network = at_mean(Representation(q).posterior)
    x = x.to(network.device, network.dtype)
    means = torch.cat([network({"centre": part}) for part in x.split(batch_size or len(x))])
    if not bool(means.isfinite().all()):
        raise FloatingPointError(
            "the encoder returns NaN or infinite codes: check its weights, or train with a smaller learning rate."
        )
    return ActiveUnits(means.double().var(0), threshold)
