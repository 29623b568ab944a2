"""Autoencoders with a Laplace posterior over their weights: fitted afterwards, or trained with it."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from osculate.autoencoders.autoencoder import Autoencoder
from osculate.autoencoders.checks import require_inputs
from osculate.autoencoders.drawn import at_once
from osculate.autoencoders.representation import Representation
from osculate.likelihoods import Likelihood
from osculate.methods.laplace import laplace
from osculate.posteriors import Gaussian, as_gaussian
from osculate.predictive.sampled import skip_comparison
from osculate.priors import Prior
from osculate.progress import track
from osculate.structures import Structure

#: Temperatures from which held-out data choose one: three to a decade.
TEMPERATURES = tuple(10 ** (-k / 3) for k in range(15, -4, -1))


class LaplacianAutoencoder(Representation):
    """A :class:`Representation` by a Gaussian over the weights, at the temperature of held-out data. [miani2022]

    :meth:`post_hoc` makes one of a trained network. To train online, train ``osc.methods.OnlineLaplace.published`` with
    y = x first, and then :meth:`post_hoc` its network; :meth:`tuned` takes what such a training gives as it is, where
    the likelihood has the noise of the data.

    Args:
        q: the posterior, or what ``osc.train`` returned.
        codes: as of :class:`Representation`.

    >>> from osculate.autoencoders import Autoencoder, LaplacianAutoencoder
    >>> x = torch.randn(60, 6)
    >>> net = Autoencoder(nn.Linear(6, 2), nn.Linear(2, 6))
    >>> r = LaplacianAutoencoder.post_hoc(net, osc.likelihoods.Gaussian(0.5), x[:40], validation=x[40:], samples=5)
    >>> r.encode(x).variance.shape
    torch.Size([60, 2])
    """

    @classmethod
    def post_hoc(
        cls,
        model: Autoencoder,
        likelihood: Likelihood,
        x: Shaped[Tensor, "N *D"],
        *,
        validation: Shaped[Tensor, "M *D"] | None,
        structure: str | Structure = "approx_diag",
        prior: str | float | Prior = 1.0,
        progress: bool = False,
        **options: Any,
    ) -> "LaplacianAutoencoder":
        """The Laplace approximation of a trained autoencoder, its noise by the residuals.

        Args:
            model: the network, in evaluation mode where that makes a difference.
            likelihood: p(x'|f); where it has a noise scale, that becomes the root mean squared residual.
            x: what it was trained on.
            validation: held-out data that choose the temperature; None leaves it at 1, where drawn networks are mostly
                far apart.
            structure: of the curvature.
            prior: what it was trained with, or "evidence", which then finds the noise scale too. One precision by the
                evidence is often hundreds, and hides what the data say about single weights.
            progress: show progress bars.
            **options: of :meth:`tuned`.

        Raises:
            TypeError: inputs that are no tensor, or options without ``validation``.
            ValueError: a VAE. Its log variances are no part of f_θ(x) = d(μ(x)), and have no curvature.

        Cost: one curvature fit, and :meth:`tuned`.
        """
        model.require_curvature(name for name, _ in model.named_parameters())
        if not isinstance(x, Tensor):
            raise TypeError(f"the inputs are a {type(x).__name__}: pass x alone, which is its own target.")
        if validation is None and options:
            raise TypeError(f"{', '.join(options)}: options of the choice by held-out data, and validation is None.")
        q = laplace(model, likelihood, (x, x), structure=structure, prior=prior, progress=progress)
        if likelihood.has_noise and prior != "evidence":
            count, error = likelihood.noise_balance(q.fit.statistics)
            q = q.replace(likelihood=likelihood.times((error / count).sqrt()))
        if validation is None:
            return cls(q, codes=x)
        return cls.tuned(q, validation, codes=x, progress=progress, **options)

    @classmethod
    def tuned(
        cls,
        q: Any,
        validation: Shaped[Tensor, "M *D"],
        *,
        codes: Shaped[Tensor, "N *D"] | None = None,
        temperatures: Sequence[float] = TEMPERATURES,
        samples: int = 20,
        caution: float = 1.0,
        progress: bool = False,
    ) -> "LaplacianAutoencoder":
        r"""The posterior at the temperature that held-out data choose.

        The score is the mean over data of :meth:`log_prob`, with the same random numbers at each temperature. Of all
        temperatures whose score is within ``caution`` standard errors of the best (of the paired difference) the
        highest is taken, as ``osc.tune`` does: held-out data of the same kind do not tell how unsure to be elsewhere.

        Args:
            q: a Gaussian posterior over an autoencoder, or what ``osc.train`` returned.
            validation: held-out data.
            codes: as of :class:`Representation`.
            temperatures: the candidates.
            samples: networks drawn for each.
            caution: standard errors that may be given away for more uncertainty.
            progress: show a progress bar.

        Raises:
            TypeError: no Gaussian posterior, or held-out data that are no tensor.
            ValueError: no candidate, or none with a finite score; no held-out data, or some that are not finite.

        A warning says that the lowest or the highest temperature was taken.

        Cost: ``samples`` passes over the held-out data for each temperature.
        """
        q = as_gaussian(q, "the temperature of an autoencoder")
        require_inputs(validation)
        if not temperatures:
            raise ValueError("there is no temperature to choose from: pass at least one, or leave temperatures out.")
        scores = {
            value: _score(q.replace(temperature=value), validation, samples)
            for value in track(sorted(temperatures), "temperature", len(temperatures), progress)
        }
        finite = {value: score for value, score in scores.items() if bool(score.isfinite().all())}
        if not finite:
            raise ValueError(
                "no temperature gave a finite log density on the held-out data: check them, and the noise."
            )
        best = max(finite, key=lambda value: float(finite[value].mean()))

        def close(value: float) -> bool:
            loss = finite[best] - finite[value]
            return float(loss.mean()) <= caution * float(loss.std(correction=0)) / len(loss) ** 0.5

        chosen = max(filter(close, finite))
        _warn_of_ends(chosen, sorted(temperatures))
        return cls(q.replace(temperature=chosen), codes=codes)


def _warn_of_ends(chosen: float, tried: Sequence[float]) -> None:
    if len(tried) < 2 or chosen not in (tried[0], tried[-1]):
        return
    if chosen == tried[0]:
        which, end = "least", "lowest"
        why = (
            "Directions that the data say nothing of keep the variance of the prior: a larger prior precision narrows "
            "them."
        )
    else:
        which, end = "most", "highest"
        why = (
            "Mostly the network reconstructs them worse than the noise scale of its likelihood says: give it the noise "
            "of the residuals, as post_hoc does."
        )
    warnings.warn(
        f"on these held-out data the {which} uncertainty is best: the temperature is {chosen:.1g}, the {end} of those "
        f"that were tried. {why}",
        stacklevel=3,
    )


def _score(q: Gaussian, x: Tensor, samples: int) -> Float[Tensor, " M"]:
    skip_comparison(q)  # networks far worse than the mode are what is being looked for
    draws = Representation(q)
    parts = [
        draws.log_prob(part, samples, torch.Generator().manual_seed(0))
        for part in x.split(at_once(x, samples, q.network))
    ]
    return torch.cat(parts).double().cpu()
