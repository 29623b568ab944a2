"""Imputation of hidden pixels by drawn autoencoders."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.distributions import Categorical

from osculate.autoencoders.autoencoder import require_floats
from osculate.autoencoders.representation import require_representation
from osculate.posteriors import as_posterior
from osculate.progress import track
from osculate.randomness import drawn_on, fresh_seed
from osculate.registry import choose
from osculate.tasks._predictions import predictions
from osculate.tasks.calibration import CalibrationRecord, Record, scored_classes

#: Initial values of hidden pixels.
STARTS = ("noise", "mean")


@dataclass(frozen=True, eq=False)
class ImputationRecord(Record):
    r"""The result of :func:`imputation`.

    Args:
        images: Completed images, one of each datum by each network, (S, N, \*D), of the type of the data.
        observed: Pixels that were held fixed, (N, \*D).
        predicted: Class of each image by the classifier; None without one.
        calibration: The predictions averaged over draws, and their reliability; None without classifier and targets.
        scores: Over hidden pixels whose truth is known ``mse``, the squared error of the mean image, and ``mse_draw``,
            that of a single draw on average (the variance over draws lies between the two), each for one pixel; with
            a classifier ``modes``, exp of the entropy of the classes seen in a datum's draws, averaged over the data
            (1: always the same class); with targets also accuracy, nll, brier, ece, mce and rmsce of the
            probabilities averaged over draws.
    """

    images: Float[Tensor, "S N *D"]
    observed: Bool[Tensor, "N *D"]
    predicted: Int[Tensor, "S N"] | None = None
    calibration: CalibrationRecord | None = None

    @property
    def mean(self) -> Float[Tensor, "N *D"]:
        """The mean over draws; the data themselves where they were observed."""
        return torch.where(self.observed, self.images[0], self.images.mean(0))

    @property
    def deviation(self) -> Float[Tensor, "N *D"]:
        """The standard deviation over draws; zero where the data were observed."""
        return self.images.std(0, correction=0).masked_fill(self.observed, 0)


def lower_half(shape: Sequence[int]) -> Bool[Tensor, "*D"]:
    r"""A mask of images (…, H, W) whose upper H // 2 rows are hidden.

    Raises:
        ValueError: fewer than two axes.

    >>> lower_half((1, 2, 3))
    tensor([[[False, False, False],
             [ True,  True,  True]]])
    """
    if len(shape) < 2:
        raise ValueError(f"an image must have rows and columns, got shape {tuple(shape)}: pass x.shape[1:].")
    observed = torch.ones(tuple(shape), dtype=torch.bool)
    observed[..., : shape[-2] // 2, :] = False
    return observed


@torch.no_grad()
def imputation(
    r: Any,
    x: Shaped[Tensor, "N *D"],
    observed: Shaped[Tensor, "*M"],
    *,
    draws: int = 10,
    rounds: int = 2,
    start: str = "noise",
    classifier: Any = None,
    targets: Int[Tensor, "*T"] | None = None,
    batch_size: int = 500,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> ImputationRecord:
    r"""Impute hidden pixels: each drawn network reconstructs the image, with observed pixels restored.

    .. math:: x^{(t+1)}_s = m \odot x + (1 - m) \odot f_{\theta_s}(x^{(t)}_s), \qquad \theta_s \sim q

    with the mask m of observed pixels. One network computes all rounds for all data of a draw, so that images are
    coherent (except with dropout and the codes of a VAE, which are redrawn in each pass). Values are not clipped.
    [miani2022]

    Args:
        r: A representation: posterior, ensemble, dropout, VAE or a single autoencoder.
        x: The true images; NaN at hidden pixels whose truth is not known.
        observed: Mask of the given pixels, (\*D) for all images or (N, \*D). With a mask that is False everywhere,
            images are generated from noise alone.
        draws: S.
        rounds: Passes through each network.
        start: Initial values of hidden pixels: "noise", independent draws from the Gaussian with mean and standard
            deviation of all observed pixels, or "mean", that mean; N(0, 1) and 0 where nothing is observed.
        classifier: Posterior or network with a ``Categorical`` likelihood and one class for each image.
        targets: The true classes.
        batch_size: Images at a time.
        generator: Source of random numbers for networks and noise; the networks do not depend on the start.
        progress: Show a progress bar.

    Raises:
        TypeError: not a representation, images that are not floating point, or a mask that is not boolean.
        ValueError: shapes that do not fit, a mask that hides nothing, values that are not finite, targets without a
            classifier, a classifier without classes.

    Cost: S × rounds passes; the images of all draws are held.

    >>> from osculate.autoencoders import Autoencoder, Representation
    >>> net = Autoencoder(*osc.networks.mlp_coders((1, 4, 4), hidden=(8,)))
    >>> r = Representation(osc.posteriors.Point(net, osc.likelihoods.Gaussian()))
    >>> x = torch.rand(6, 1, 4, 4)
    >>> record = imputation(r, x, lower_half((1, 4, 4)), draws=3)
    >>> record.images.shape, sorted(record.metrics())
    (torch.Size([3, 6, 1, 4, 4]), ['mse', 'mse_draw'])
    """
    observed = _checked(r, x, observed)
    choose("start of hidden pixels", start, STARTS)
    for name, value in {"draws": draws, "rounds": rounds, "batch_size": batch_size}.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    if targets is not None and (classifier is None or len(targets) != len(x)):
        why = "no classifier to compare them with" if classifier is None else f"{len(x)} images"
        raise ValueError(f"there are {len(targets)} targets and {why}: pass one target per image, and a classifier.")
    noise = torch.Generator().manual_seed(fresh_seed(generator))
    seen = x[observed].double()
    mean, spread = (float(seen.mean()), float(seen.std(correction=0))) if len(seen) else (0.0, 1.0)
    images = torch.empty(draws, *x.shape, dtype=x.dtype, device=x.device)
    for image, network in zip(images, track(r.networks(draws, generator), "imputing", draws, progress), strict=True):
        begun = torch.where(observed, x, mean)
        if start == "noise":
            drawn = torch.randn(x.shape, generator=noise, dtype=x.dtype, device=drawn_on(x, noise)).to(x.device)
            begun = torch.where(observed, x, mean + spread * drawn)
        for rows in torch.arange(len(x)).split(batch_size):
            part = slice(int(rows[0]), int(rows[-1]) + 1)
            image[part] = _filled(network, begun[part], observed[part], rounds)
    scores = {}
    known = ~observed & ~x.isnan()
    if bool(known.any()):
        truth = x[known].double()
        each = torch.stack([(image[known].double() - truth).square().mean() for image in images])
        error = (images.mean(0, dtype=torch.double)[known] - truth).square().mean()
        scores = {"mse": float(error), "mse_draw": float(each.mean())}
    if classifier is None:
        return ImputationRecord(images, observed, scores=scores)
    return _classified(images, observed, classifier, targets, batch_size, scores)


def _checked(r: Any, x: Tensor, observed: Tensor) -> Tensor:
    """The mask for each image, after checks of all arguments."""
    require_representation(r, "r")
    require_floats(x)
    if not isinstance(observed, Tensor) or observed.dtype != torch.bool:
        what = f"of {observed.dtype}" if isinstance(observed, Tensor) else f"a {type(observed).__name__}"
        raise TypeError(
            f"the mask of observed pixels must be a tensor of torch.bool, got {what}: pass torch.as_tensor(observed, "
            "dtype=torch.bool)."
        )
    if observed.shape not in (x.shape, x.shape[1:]) or not len(x):
        raise ValueError(
            f"a mask of shape {tuple(observed.shape)} does not fit images of shape {tuple(x.shape)}: it needs "
            f"{tuple(x.shape[1:])} or {tuple(x.shape)}, with at least one image."
        )
    observed = observed.to(x.device).expand(x.shape)
    if bool(observed.all()):
        raise ValueError("the mask hides no pixel: set it to False where x is to be imputed.")
    wrong = x.isinf() | (x.isnan() & observed)
    if bool(wrong.any()):
        where = tuple(int(i) for i in wrong.nonzero()[0])
        raise ValueError(
            f"x holds {x[where].item()} at index {where}: only NaN is allowed, and only at hidden pixels of unknown "
            "truth. Hide the pixel, or clean the data."
        )
    return observed


def _filled(network: Any, x: Tensor, observed: Tensor, rounds: int) -> Tensor:
    """The images after the last round."""
    filled = x
    for number in range(rounds):
        found = network(filled).to(x)
        if found.shape != x.shape:
            raise ValueError(
                f"the network returns shape {tuple(found.shape[1:])} for images {tuple(x.shape[1:])}: build a decoder "
                "that returns the shape of the images."
            )
        if not bool(found.isfinite().all()):
            raise ValueError(
                f"a drawn network returned NaN or infinity in round {number + 1}: its weights are too far from "
                "the mode. Lower the temperature, as LaplacianAutoencoder.tuned does, or take fewer rounds."
            )
        filled = torch.where(observed, x, found)
    return filled


def _classified(
    images: Tensor, observed: Tensor, classifier: Any, targets: Tensor | None, rows: int, scores: dict[str, float]
) -> ImputationRecord:
    """The record with the predictions of a classifier."""
    every = images.flatten(0, 1).to(as_posterior(classifier).network.dtype)
    pieces = []
    for predictive, _, _ in predictions(classifier, (every, torch.zeros(len(every))), rows, False, "", {}):
        if not isinstance(predictive, Categorical) or predictive.probs.ndim != 2:
            raise ValueError(
                f"the classifier predicts a {type(predictive).__name__} of shape {tuple(predictive.batch_shape)} for "
                f"{len(every)} images: it must have a Categorical likelihood with one class per image."
            )
        pieces.append(predictive.probs.double().cpu())
    probs = torch.cat(pieces).unflatten(0, images.shape[:2])
    predicted = probs.argmax(-1)
    share = torch.nn.functional.one_hot(predicted, probs.shape[-1]).double().mean(0)
    scores = {**scores, "modes": float(torch.special.entr(share).sum(-1).exp().mean())}
    if targets is None:
        return ImputationRecord(images, observed, predicted, scores=scores)
    found = scored_classes(probs.mean(0).log(), targets.long().cpu())
    return ImputationRecord(images, observed, predicted, found, scores={**scores, **found.metrics()})
