"""Scores of out-of-distribution inputs: functions of a view of a batch, and views of data."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution

from osculate.autoencoders import VAE, Encoding, Reconstruction, Representation
from osculate.autoencoders.distributions import at_once
from osculate.posteriors import Gaussian, Sampled, as_posterior
from osculate.predictive import functional_variance
from osculate.priors import Isotropic
from osculate.progress import track
from osculate.randomness import fresh_seed
from osculate.tasks._inputs import TrainingInputs
from osculate.tasks._predictions import in_closed_form, predictions

#: A temperature at which the curvature counts for nothing beside the prior.
FLAT = 1e30
#: The need of scores that compare with training inputs.
TRAIN = "training inputs: pass train=x, some thousand of them"
#: A score (N,) of the inputs that a view shows; the higher, the more likely out of distribution.
Score = Callable[[Any], Float[Tensor, " N"]]


class Views(ABC):
    """The representation of data by one kind of model, batch by batch, and the scores of these.

    Attributes:
        known: Scores by name.
        beside: Scores of the inputs alone that stand beside these by default, also without training inputs.
    """

    known: ClassVar[Mapping[str, Score]]
    beside: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def of(self, x: Tensor, words: str) -> Iterator[Any]:
        """A view of each batch of the inputs that the words name, such as "inside inputs"."""

    @abstractmethod
    def fitting(self, inside: Tensor) -> dict[str, bool]:
        """True for each score that varies between inputs with this model; these are the default scores."""

    def require(self, names: Sequence[str], inside: Tensor) -> None:
        """Check that scores of this kind of model can be had of this one.

        Raises:
            ValueError: a score that this model does not have.
        """

    def scored(self, x: Tensor, names: Sequence[str], words: str) -> dict[str, Float[Tensor, " N"]]:
        """The scores of these names of every input, on the CPU."""
        pieces: dict[str, list[Tensor]] = {name: [] for name in names}
        with telling(words):
            for view in self.of(x, words) if names else ():
                for name in names:
                    pieces[name].append(self.known[name](view).cpu())
        return {name: torch.cat(values) for name, values in pieces.items()}


@contextmanager
def telling(words: str) -> Iterator[None]:
    """Add to an error which inputs were scored: they may be the reason, and may not."""
    try:
        yield
    except (ValueError, RuntimeError, IndexError) as error:
        said = getattr(error, "__notes__", [])  # Python 3.10 has no add_note
        error.__notes__ = [*said, f"This happened while scoring the {words}."]
        raise


def need(score: str) -> str | None:
    """Return what a score needs, and the way to give it; None for unknown scores and those that need nothing."""
    if score in TrainingInputs.NAMES:
        return TRAIN
    if score in Representations.known:
        return "codes and images: pass a posterior over an osc.autoencoders.Autoencoder as q"
    if score in Predictives.known:
        return "a predictive: pass a posterior as q, for a Representation its .posterior"
    return None


@dataclass(frozen=True, eq=False)
class Predicted:
    """A batch and its predictive.

    Args:
        q: The posterior.
        x: Inputs (N, …).
        predictive: p(y|x).
    """

    q: Any
    x: Tensor
    predictive: Distribution


def entropy(view: Predicted) -> Float[Tensor, " N"]:
    """Entropy of the predictive in nats, summed over outputs: 0 for a certain class, log C for a uniform predictive.

    Raises:
        ValueError: the predictive has no entropy in closed form.
    """
    found = in_closed_form(view.predictive.entropy)
    if found is None:
        raise ValueError(
            f"the predictive, a {type(view.predictive).__name__}, has no entropy in closed form: use the score"
            " 'functional_variance' of a Laplace posterior instead, or via='linearised' where the likelihood is"
            " Gaussian."
        )
    return found.reshape(len(view.x), -1).sum(1)


def max_probability(view: Predicted) -> Float[Tensor, " N"]:
    """One minus the probability of the most probable class (of all outputs together, if there are several).

    Raises:
        ValueError: the predictive is not one of classes.
    """
    predictive = view.predictive
    if isinstance(predictive, Categorical):
        top = predictive.probs.amax(-1)
    elif isinstance(predictive, Bernoulli):
        top = torch.maximum(predictive.probs, 1 - predictive.probs)
    else:
        raise ValueError(
            f"the score 'max_probability' needs classes, got a predictive {type(predictive).__name__}: use"
            " 'entropy' or 'functional_variance'."
        )
    return 1 - top.reshape(len(view.x), -1).prod(1)


def total_variance(view: Predicted) -> Float[Tensor, " N"]:
    """Trace of the covariance of the network's outputs f(x) under the posterior, without observation noise.

    Raises:
        TypeError: the posterior has no functional variance: a point has none.
    """
    return functional_variance(as_posterior(view.q), view.x, diagonal=True).flatten(1).sum(1)


class Predictives(Views):
    """Predictives of a posterior.

    Args:
        q: Anything that ``osculate.predict`` takes.
        batch_size: Rows at a time.
        progress: Show progress bars.
        options: Options of ``osculate.predict``.
    """

    known: ClassVar[Mapping[str, Score]] = {
        "entropy": entropy,
        "max_probability": max_probability,
        "functional_variance": total_variance,
    }

    def __init__(self, q: Any, batch_size: int, progress: bool, options: dict[str, Any]) -> None:
        self.q, self.batch_size, self.progress, self.options = q, batch_size, progress, options

    def of(self, x: Tensor, words: str) -> Iterator[Predicted]:
        rows = (x, torch.zeros(len(x)))  # no target is needed
        title = f"scoring {words}"
        for predictive, part, _ in predictions(self.q, rows, self.batch_size, self.progress, title, self.options):
            yield Predicted(self.q, part, predictive)

    def fitting(self, inside: Tensor) -> dict[str, bool]:
        rows = (inside[:2], torch.zeros(len(inside[:2])))
        with telling("inside inputs"):
            (predictive, _, _), *_ = predictions(self.q, rows, 2, False, "", self.options)
        found = {
            "entropy": in_closed_form(predictive.entropy) is not None,
            "max_probability": isinstance(predictive, Categorical | Bernoulli),
            "functional_variance": "linearised" in as_posterior(self.q).ways,
        }
        if not any(found.values()):
            raise ValueError(
                f"none of the scores {', '.join(map(repr, found))} fits: the predictive, a"
                f" {type(predictive).__name__}, has no entropy in closed form and no classes, and a"
                f" {type(as_posterior(self.q)).__name__} no functional variance. Fit a Laplace posterior, or compare a"
                " score of your own, such as the variance of osc.predict(q, x), by osc.metrics.auroc."
            )
        return found


@dataclass(frozen=True, eq=False)
class Represented:
    """A batch, with its codes and reconstructions by the drawn networks.

    Args:
        x: Inputs (N, …).
        codes: Their codes.
        images: Their reconstructions, by the same networks.
        linear: Reconstructions by linearised networks, drawn from the posterior and from isotropic noise, if they
            can be had.
        usual_nll: Mean of -log p over training data, if given.
    """

    x: Tensor
    codes: Encoding
    images: Reconstruction
    linear: Callable[[], tuple[Reconstruction, Reconstruction]] | None = None
    usual_nll: float | None = None

    @cached_property
    def log_probs(self) -> Float[Tensor, "S N"]:
        """log p(x|θ_s) of each draw, in nats."""
        return self.images.log_probs(self.x.to(self.images.mean)).double()


def nll(view: Represented) -> Float[Tensor, " N"]:
    """-log p(x) in nats, p(x) the mean density over draws."""
    return math.log(len(view.log_probs)) - view.log_probs.logsumexp(0)


def typicality(view: Represented) -> Float[Tensor, " N"]:
    """|-log p(x) - E_train[-log p]|, as inputs may also be too probable. [nalisnick2019typicality]"""
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
    return _deviation(view.images)


def relative_deviation(view: Represented) -> Float[Tensor, " N"]:
    r"""σ of the linearised image under the posterior, over σ under isotropic noise of the weights, both summed.

    The ratio is small where the training data determine the weights that an image depends on. The numerator alone is
    also large where the image depends on many weights, such as for bright images.
    """
    assert view.linear is not None
    posterior, isotropic = map(_deviation, view.linear())
    return posterior / isotropic


def _deviation(images: Reconstruction) -> Float[Tensor, " N"]:
    return images.mean_variance.double().sqrt().flatten(1).sum(1)


class Representations(Views):
    """Codes and images by one set of drawn networks, the same for all data.

    Args:
        q: The representation.
        train: Training inputs, for ``typicality``.
        samples: S, networks drawn.
        generator: Source of random numbers.
        batch_size: Rows at a time; fewer if the images of all draws do not fit into memory.
        progress: Show progress bars.
    """

    known: ClassVar[Mapping[str, Score]] = {
        "nll": nll,
        "typicality": typicality,
        "waic": waic,
        "disagreement": disagreement,
        "latent_deviation": latent_deviation,
        "output_deviation": output_deviation,
        "relative_deviation": relative_deviation,
    }
    beside: ClassVar[tuple[str, ...]] = ("mean_pixel",)

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
        self._generator = generator or torch.Generator().manual_seed(fresh_seed())
        self._state = self._generator.get_state()
        self._usual_nll: float | None = None

    def of(self, x: Tensor, words: str) -> Iterator[Represented]:
        size = min(self.batch_size, at_once(x, self.samples, self.q.posterior.network))
        for rows in track(x.split(size), f"scoring {words}", -(-len(x) // size), self.progress):
            yield self._view(rows)

    def _view(self, x: Tensor) -> Represented:
        self._generator.set_state(self._state)  # the same networks for each batch
        codes, images = self.q.represent(x, self.samples, generator=self._generator)
        linear = partial(self._linear, x) if isinstance(self.q.posterior, Gaussian) else None
        return Represented(x, codes, images, linear, self._usual_nll)

    def _linear(self, x: Tensor) -> tuple[Reconstruction, Reconstruction]:
        """Images by linearised networks under the posterior, and with the same noise of all its weights."""
        q = self.q.posterior
        assert isinstance(q, Gaussian)
        found = []
        for each in (q, q.replace(temperature=FLAT, prior=Isotropic(1.0))):
            self._generator.set_state(self._state)
            r = Representation(each)
            found.append(r.reconstruct(x, self.samples, generator=self._generator, via="linearised"))
        return found[0], found[1]

    def fitting(self, inside: Tensor) -> dict[str, bool]:
        return dict(zip(self.known, self._fit(self.known, inside), strict=True))

    def _fit(self, names: Iterable[str], inside: Tensor) -> list[bool]:
        """True for each score that can be had, and varies."""
        with telling("inside inputs"):
            view = self._view(inside[:2])
            return [self._fits(name, view) for name in names]

    def _fits(self, name: str, view: Represented) -> bool:
        """True if a score can be had, and varies."""
        if name == "typicality":
            return self.train is not None
        if name in ("waic", "disagreement"):
            return bool(view.log_probs.std(0, correction=0).gt(0).any())
        if name == "latent_deviation":
            return _spread(view.codes.variance, view.codes.mean)
        if name == "output_deviation":
            return _spread(view.images.mean_variance, view.images.mean)
        return name != "relative_deviation" or (view.linear is not None and self.samples > 1)

    def require(self, names: Sequence[str], inside: Tensor) -> None:
        """Check that these scores can be had, and vary.

        Raises:
            ValueError: ``typicality`` without training inputs, ``relative_deviation`` of a posterior that is not
                Gaussian, or a score of a spread that is zero.
        """
        q = self.q.posterior
        if "typicality" in names and self.train is None:
            raise ValueError(f"the score 'typicality' needs {TRAIN}.")
        if "relative_deviation" in names and not isinstance(q, Gaussian):
            raise ValueError(
                f"the score 'relative_deviation' needs a Gaussian posterior, such as osc.laplace's, got"
                f" {type(q).__name__}: use 'output_deviation' of a posterior with a spread."
            )
        of_spread = [name for name in names if name not in ("nll", "typicality")]
        if not of_spread:
            return
        constant = [name for name, fits in zip(of_spread, self._fit(of_spread, inside), strict=True) if not fits]
        if constant and self.samples < 2 and (isinstance(q, Sampled) or isinstance(self.q.model, VAE)):
            raise ValueError(
                f"the score {constant[0]!r} measures a spread, and one network has none: pass samples=2 or more."
            )
        if constant:
            raise ValueError(
                f"the score {constant[0]!r} measures a spread, and this {type(q).__name__} has none: all inputs would"
                " have equal scores. Use 'nll', or a posterior over the weights, such as"
                " osc.autoencoders.LaplacianAutoencoder."
            )

    def scored(self, x: Tensor, names: Sequence[str], words: str) -> dict[str, Float[Tensor, " N"]]:
        if "typicality" in names and self._usual_nll is None:
            assert self.train is not None
            self._usual_nll = float(super().scored(self.train, ["nll"], "training inputs")["nll"].mean())
        return super().scored(x, names, words)


def _spread(variance: Tensor, mean: Tensor) -> bool:
    """Return True if anything varies by more than rounding."""
    return bool((variance.sqrt() > 8 * torch.finfo(mean.dtype).eps * mean.abs()).any())
