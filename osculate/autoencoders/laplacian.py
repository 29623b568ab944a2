"""Autoencoders with a Laplace posterior over their weights, fitted post hoc or online."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from osculate.autoencoders.autoencoder import Autoencoder, require_inputs
from osculate.autoencoders.distributions import at_once
from osculate.autoencoders.representation import Representation
from osculate.curvature.columns import Kind
from osculate.likelihoods import Likelihood
from osculate.methods.laplace import laplace
from osculate.posteriors import Gaussian, as_gaussian
from osculate.predictive.sampled import skip_comparison
from osculate.priors import Prior
from osculate.progress import track
from osculate.structures import Structure

#: Candidate temperatures: three per decade.
TEMPERATURES = tuple(10 ** (-k / 3) for k in range(15, -4, -1))


class LaplacianAutoencoder(Representation):
    """A :class:`Representation` by a Gaussian over the weights, at a temperature tuned on held-out data. [miani2022]

    Fit a trained network with :meth:`post_hoc`. For online training, train
    ``osc.methods.OnlineLaplace.published`` with y = x first, and then call :meth:`post_hoc` on its network, or
    :meth:`tuned` on the result of the training if the likelihood has the noise scale of the data.

    Args:
        q: The posterior, or the result of ``osc.train``.
        codes: Data that define the distribution of new codes, as in :class:`Representation`.

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
        curvature: str | Kind = "auto",
        prior: str | float | Prior = 1.0,
        progress: bool = False,
        **options: Any,
    ) -> "LaplacianAutoencoder":
        """The Laplace approximation of a trained autoencoder, with the noise scale of its residuals.

        Args:
            model: The network, in evaluation mode if it has layers that depend on the mode.
            likelihood: p(x'|f); a noise scale is set to the root mean squared residual.
            x: Training inputs.
            validation: Held-out data that choose the temperature; None leaves it at 1, at which drawn networks usually
                differ widely.
            structure: Structure of the curvature. "kron" knows which weights the data determine together, and costs
                one backward pass for each pixel with the GGN.
            curvature: Curvature, as in ``osculate.laplace``; with "fisher", which draws a target for each image, "kron"
                is cheap.
            prior: Prior of the training, or "evidence", which also tunes the noise scale. A single prior precision
                tuned by the evidence is often in the hundreds, and dominates the curvature of single weights.
            progress: Show progress bars.
            **options: Options of :meth:`tuned`.

        Raises:
            TypeError: inputs that are not a tensor, or options without ``validation``.
            ValueError: a VAE, as f_θ(x) = d(μ(x)) has no curvature in its log variances.

        Cost: one curvature fit, and that of :meth:`tuned`.
        """
        model.require_curvature(name for name, _ in model.named_parameters())
        if not isinstance(x, Tensor):
            raise TypeError(f"the inputs are a {type(x).__name__}: pass x alone, which is also the target.")
        if validation is None and options:
            raise TypeError(
                f"{', '.join(options)}: these options tune the temperature, and validation is None: pass held-out data."
            )
        q = laplace(
            model,
            likelihood,
            (x, x),
            structure=structure,
            curvature=curvature,
            prior=prior,
            refine=False,
            progress=progress,
        )
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
        r"""The posterior at the temperature chosen by held-out data.

        The score is the mean of :meth:`log_prob` over the data, with the same random numbers at each temperature. The
        highest temperature whose score is within ``caution`` standard errors of the best (of the paired difference) is
        chosen, as in ``osc.tune``, because held-out data say nothing about inputs out of distribution. A warning is
        issued if it is the lowest or highest candidate.

        Args:
            q: A Gaussian posterior over an autoencoder, or the result of ``osc.train``.
            validation: Held-out data.
            codes: Data that define the distribution of new codes, as in :class:`Representation`.
            temperatures: Candidates.
            samples: Networks drawn for each temperature.
            caution: Standard errors of the score that may be lost for a higher temperature.
            progress: Show a progress bar.

        Raises:
            TypeError: the posterior is not Gaussian, or the held-out data are not a tensor.
            ValueError: no candidates, no candidate with a finite score, or no finite held-out data.

        Cost: ``samples`` passes over the held-out data for each temperature.
        """
        q = as_gaussian(q, "the temperature of an autoencoder")
        require_inputs(validation)
        if not temperatures:
            raise ValueError("there are no candidate temperatures: pass at least one, or leave out temperatures=.")
        scores = {
            value: _score(q.replace(temperature=value), validation, samples)
            for value in track(sorted(temperatures), "temperature", len(temperatures), progress)
        }
        finite = {value: score for value, score in scores.items() if bool(score.isfinite().all())}
        if not finite:
            raise ValueError(
                "no temperature gave a finite log density of the held-out data: check them, and the noise scale."
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
        why = "Directions without curvature keep the prior variance: increase the prior precision."
    else:
        which, end = "most", "highest"
        why = (
            "Usually the residuals are larger than the noise scale of the likelihood: set it to that of the residuals, "
            "as post_hoc does."
        )
    warnings.warn(
        f"the {which} uncertainty scores best on the held-out data: the temperature is {chosen:.1g}, the {end} "
        f"candidate. {why}",
        stacklevel=3,
    )


def _score(q: Gaussian, x: Tensor, samples: int) -> Float[Tensor, " M"]:
    skip_comparison(q)  # networks far worse than the mode are expected here
    draws = Representation(q)
    parts = [
        draws.log_prob(part, samples, torch.Generator().manual_seed(0))
        for part in x.split(at_once(x, samples, q.network))
    ]
    return torch.cat(parts).double().cpu()
