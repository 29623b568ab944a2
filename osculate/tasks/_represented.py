"""Scores by the codes and images of an autoencoder whose networks are drawn."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.autoencoders import Encoding, Reconstruction, Representation
from osculate.autoencoders.drawn import at_once
from osculate.progress import track
from osculate.tasks._scored import Score, Views, mean_pixel


@dataclass(frozen=True, eq=False)
class Represented:
    """A batch, and what the drawn networks make of it.

    Args:
        x: inputs (N, …), on the device of the network.
        codes: their codes.
        images: their reconstructions, by the same networks.
        usual_nll: mean of -log p over training data, where these are known.
    """

    x: Tensor
    codes: Encoding
    images: Reconstruction
    usual_nll: float | None = None

    @cached_property
    def log_probs(self) -> Float[Tensor, "S N"]:
        """log p(x|θ_s) of each draw, in nats."""
        return self.images.log_probs(self.x).double()


def nll(view: Represented) -> Float[Tensor, " N"]:
    """-log p(x) in nats, p(x) the mean density over draws."""
    return math.log(len(view.log_probs)) - view.log_probs.logsumexp(0)


def typicality(view: Represented) -> Float[Tensor, " N"]:
    """|-log p(x) - E_train[-log p]|: inputs may also be too probable. [nalisnick2019typicality]"""
    assert view.usual_nll is not None
    return (nll(view) - view.usual_nll).abs()


def waic(view: Represented) -> Float[Tensor, " N"]:
    """-(E_s log p(x|θ_s) - var_s log p(x|θ_s)): the Watanabe-Akaike information criterion. [choi2018waic]"""
    return view.log_probs.var(0, correction=0) - view.log_probs.mean(0)


def disagreement(view: Represented) -> Float[Tensor, " N"]:
    """Σ_s w_s² with w_s ∝ p(x|θ_s), one over the effective number of draws: 1/S where all explain x equally well.

    [daxberger2019] It is 1 to double precision where one draw is 40 nats ahead: such inputs tie.
    """
    return view.log_probs.softmax(0).square().sum(0)


def latent_deviation(view: Represented) -> Float[Tensor, " N"]:
    """Σ_k of the standard deviation of the code, by weights and encoder together."""
    return view.codes.variance.double().sqrt().sum(1)


def output_deviation(view: Represented) -> Float[Tensor, " N"]:
    """Σ over pixels of the standard deviation of the image, by weights and codes, without observation noise."""
    return view.images.mean_variance.double().sqrt().flatten(1).sum(1)


class Representations(Views):
    """Codes and images by one set of drawn networks, the same for all data.

    Args:
        q: the representation.
        train: training inputs, for the scores that compare with them.
        samples: S, networks drawn.
        generator: source of random numbers.
        batch_size: rows at a time; fewer where the images of all draws would not fit.
        progress: show progress bars.
    """

    known: ClassVar[Mapping[str, Score]] = {
        "nll": nll,
        "typicality": typicality,
        "waic": waic,
        "disagreement": disagreement,
        "latent_deviation": latent_deviation,
        "output_deviation": output_deviation,
        "mean_pixel": mean_pixel,
    }

    def __init__(
        self,
        q: Representation,
        train: Tensor | None,
        samples: int,
        generator: torch.Generator | None,
        batch_size: int,
        progress: bool,
    ) -> None:
        self.q, self.train, self.samples, self.batch_size, self.progress = q, train, samples, batch_size, progress
        self._generator = generator or torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        self._state = self._generator.get_state()
        self._usual_nll: float | None = None

    def of(self, x: Tensor, title: str) -> Iterator[Represented]:
        size = min(self.batch_size, at_once(x, self.samples, self.q.posterior.network))
        for rows in track(x.split(size), title, -(-len(x) // size), self.progress):
            yield self._view(rows)

    def _view(self, x: Tensor) -> Represented:
        self._generator.set_state(self._state)  # the same networks for each batch
        codes, images = self.q.represent(x, self.samples, generator=self._generator)
        network = self.q.posterior.network
        return Represented(x.to(network.device, network.dtype), codes, images, self._usual_nll)

    def fitting(self, inside: Tensor) -> dict[str, bool]:
        view = self._view(inside[:2])
        each = bool(view.log_probs.std(0, correction=0).gt(0).any())
        return {
            "nll": True,
            "typicality": self.train is not None,
            "waic": each,
            "disagreement": each,
            "latent_deviation": _spread(view.codes.variance, view.codes.mean),
            "output_deviation": _spread(view.images.mean_variance, view.images.mean),
            "mean_pixel": True,
        }

    def scores(self, wanted: Sequence[str] | None, inside: Tensor) -> dict[str, Score]:
        """As of every view; what compares with the training data knows them.

        Raises:
            ValueError: an unknown score, one of training data without any, or one of a spread where there is none.
        """
        found = super().scores(wanted, inside)
        if "typicality" in found and self.train is None:
            raise ValueError(
                "the score 'typicality' compares with the training data, and there are none: pass train=x, some"
                " thousand of the inputs that the network was trained on, or leave the score out"
            )
        if wanted is not None:
            self._require_spread(wanted, inside)
        if "typicality" in found:
            assert self.train is not None
            self._usual_nll = float(self.scored(self.train, {"nll": nll}, "scoring training data")["nll"].mean())
        return found

    def _require_spread(self, wanted: Sequence[str], inside: Tensor) -> None:
        needing = [name for name in wanted if name not in ("nll", "typicality", "mean_pixel")]
        if not needing:
            return
        fits = self.fitting(inside)
        for name in needing:
            if not fits[name]:
                raise ValueError(
                    f"the score {name!r} measures a spread, and this {type(self.q.posterior).__name__} has none there:"
                    " all inputs would score alike. Take 'nll', or a posterior over the weights, such as"
                    " osc.autoencoders.LaplacianAutoencoder"
                )


def _spread(variance: Tensor, mean: Tensor) -> bool:
    """Return True if anything varies by more than rounding."""
    return bool((variance.sqrt() > 8 * torch.finfo(mean.dtype).eps * mean.abs()).any())
