"""Semi-supervised classification by nearest neighbours among the codes of a few labelled images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from osculate.autoencoders import Representation
from osculate.autoencoders.autoencoder import require_inputs
from osculate.autoencoders.representation import require_representation
from osculate.progress import track
from osculate.registry import lookup

#: Largest number of folds of a cross-validation, which is at most the number of images of a class.
FOLDS = 5
#: Number of codes of an image that are looked up if the codes of all networks are pooled.
QUERIES = 10
#: Images at a time, through encoders and in the search for neighbours.
ROWS = 2000


@dataclass(frozen=True, eq=False)
class SemiSupervisedRecord:
    """The result of :func:`semi_supervised`.

    Args:
        labels: Numbers of labelled images of each class.
        correct: True for each test image that is classified correctly, by name of the method, for each number of labels
            and each repeat.
        neighbours: The k that cross-validation chose, by name, number of labels and repeat.
    """

    labels: tuple[int, ...]
    correct: Mapping[str, Bool[Tensor, "L R M"]]
    neighbours: Mapping[str, Int[Tensor, "L R"]]

    @property
    def accuracy(self) -> dict[str, Float[Tensor, "L R"]]:
        """Accuracy on the test images, by name, for each number of labels and each repeat."""
        return {name: each.double().mean(2) for name, each in self.correct.items()}

    @property
    def mean(self) -> dict[str, Float[Tensor, " L"]]:
        """Accuracy, averaged over repeats."""
        return {name: values.mean(1) for name, values in self.accuracy.items()}

    @property
    def standard_error(self) -> dict[str, Float[Tensor, " L"]]:
        """The standard error of :attr:`mean` over the choice of labelled images; NaN for a single repeat."""
        return {name: _error(values) for name, values in self.accuracy.items()}

    def difference(self, a: str, b: str) -> tuple[Float[Tensor, " L"], Float[Tensor, " L"]]:
        """Accuracy of a minus that of b on the same images: mean over repeats, and its standard error.

        Raises:
            ValueError: an unknown method.
        """
        accuracy = self.accuracy
        gap = lookup("method", a, accuracy) - lookup("method", b, accuracy)
        return gap.mean(1), _error(gap)

    def metrics(self) -> dict[str, float]:
        """Means and standard errors, as ``accuracy/<method>/<labels>`` and ``standard_error/<method>/<labels>``."""
        tables = {"accuracy": self.mean, "standard_error": self.standard_error}
        return {
            f"{kind}/{name}/{number}": float(value)
            for kind, table in tables.items()
            for name, values in table.items()
            for number, value in zip(self.labels, values, strict=True)
        }


def semi_supervised(
    methods: Representation | Mapping[str, Representation],
    x: Shaped[Tensor, "N *D"],
    y: Int[Tensor, "*Y"],
    test: tuple[Tensor, Tensor],
    *,
    labels: Sequence[int] = (1, 2, 5, 10, 20, 50, 100),
    repeats: int = 20,
    samples: int = 100,
    neighbours: Sequence[int] = (1, 2, 3, 5, 7, 10),
    pooled: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> SemiSupervisedRecord:
    r"""Classify by nearest neighbours among the codes of a few labelled images. [miani2022, sec. 5.3]

    .. math:: p(c \mid x) = \frac1S \sum_s \frac1k \sum_{n \in N_k(z_s(x))} [y_n = c]

    with the codes z_s of network s and the k labelled images N_k whose codes by the same network are nearest: each
    drawn network has a latent space of its own. One draw of S networks serves all images, repeats and numbers of
    labels; a method without randomness has one code, a VAE draws S.

    Labelled images are drawn anew in each repeat, the same for all methods; larger sets of a repeat contain the smaller
    ones. k is chosen by cross-validation over them, stratified by class, whose folds never share an image (the smallest
    k among equals; the smallest candidate if there is one image of each class).

    Args:
        methods: Representations by name, or one, then named "representation".
        x: The pool of images, some of which are labelled.
        y: Classes of these images, (N,).
        test: Other images (M, \*D) and their classes (M,).
        labels: Numbers of labelled images of each class.
        repeats: Number of times that labelled images are drawn.
        samples: S.
        neighbours: Candidates for k, counted in images.
        pooled: Put the codes of all networks into one space instead, as published: k S neighbours of codes of
            any network. At most 10 codes of an image are looked up. Far slower, and k is still chosen by images.
        seed: Seed of the draws of labelled images and networks.
        progress: Show a progress bar.

    Raises:
        TypeError: a method that is not a representation.
        ValueError: lengths that differ, fewer than two classes, a class with too few images or without test images,
            numbers below one, more neighbours than labelled images.

    Cost: S passes of the encoder over the images used; for each method, repeat, number of labels and network about
    twice the search for the neighbours of the test images, some 2 ms for 2,000 and K = 2.

    >>> from osculate.autoencoders import Autoencoder, Representation
    >>> x = torch.cat([torch.randn(20, 4), torch.randn(20, 4) + 9])
    >>> y = torch.arange(2).repeat_interleave(20)
    >>> net = Autoencoder(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    >>> r = Representation(osc.posteriors.Point(net, osc.likelihoods.Gaussian()))
    >>> record = semi_supervised(r, x[::2], y[::2], (x[1::2], y[1::2]), labels=(1, 5), repeats=3)
    >>> record.accuracy["representation"].shape
    torch.Size([2, 3])
    """
    named = dict(methods) if isinstance(methods, Mapping) else {"representation": methods}
    labels, neighbours = tuple(labels), tuple(sorted(set(neighbours)))
    if not named:
        raise ValueError("there are no methods: pass representations by name.")
    for name, r in named.items():
        require_representation(r, f"the method {name!r}")
    _require_numbers(labels, neighbours, repeats, samples)
    classes, y, y_test = _numbered(x, y, test)
    _require_images(classes, y, labels, neighbours)
    splits = _splits(y, len(classes), max(labels), repeats, seed)
    used, places = splits.unique(return_inverse=True)
    images, truth = torch.cat([x[used.to(x.device)], test[0].to(x)]), y_test.numpy()
    shape = (len(labels), repeats)
    correct = {name: torch.empty(*shape, len(truth), dtype=torch.bool) for name in named}
    chosen = {name: torch.empty(shape, dtype=torch.long) for name in named}
    turns = ((name, repeat) for name in named for repeat in range(repeats))
    for name, repeat in track(turns, "classifying", len(named) * repeats, progress):
        if repeat == 0:
            z = _codes(named[name], images, samples, pooled, seed)
        for row, number in enumerate(labels):
            labelled = z[:, :, places[repeat, :, :number].flatten().numpy()]
            k = _best(labelled, len(classes), neighbours)
            kinds = np.arange(len(classes)).repeat(number)
            (votes,) = _votes(labelled, kinds, z[:, :QUERIES, len(used) :], (k,), len(classes))
            correct[name][row, repeat] = torch.from_numpy(votes.argmax(-1) == truth)
            chosen[name][row, repeat] = k
    return SemiSupervisedRecord(labels, correct, chosen)


def neighbour_probabilities(
    r: Representation,
    x: Shaped[Tensor, "N *D"],
    y: Int[Tensor, "*Y"],
    new: Shaped[Tensor, "M *E"],
    *,
    neighbours: int = 1,
    samples: int = 100,
    seed: int = 0,
) -> Float[Tensor, "M C"]:
    """Probabilities of the classes of new images by few labelled ones, with the equation of :func:`semi_supervised`.

    Args:
        r: The representation.
        x: Labelled images.
        y: Their classes, from 0.
        new: Other images.
        neighbours: k, counted in images.
        samples: S.
        seed: Seed of the draws of networks.

    Raises:
        TypeError: not a representation, or inputs that are not floating-point tensors.
        ValueError: inputs that are not finite or of two shapes, targets that are not classes (N,), a number below one,
            or more neighbours than labelled images.

    Cost: S passes of the encoder over all images, and as many searches.

    >>> from osculate.autoencoders import Autoencoder, Representation
    >>> net = Autoencoder(torch.nn.Identity(), torch.nn.Linear(2, 2))
    >>> r = Representation(osc.posteriors.Point(net, osc.likelihoods.Gaussian()))
    >>> neighbour_probabilities(r, torch.eye(2), torch.tensor([0, 1]), torch.tensor([[0.9, 0.0]]))
    tensor([[1., 0.]])
    """
    require_representation(r, "r")
    _require_numbers((1,), (neighbours,), 1, samples)
    for images in (x, new):
        require_inputs(images)
    if y.shape != x.shape[:1] or y.is_floating_point() or int(y.min()) < 0 or x.shape[1:] != new.shape[1:]:
        raise ValueError(
            f"labelled images {tuple(x.shape)}, new ones {tuple(new.shape)} and classes {tuple(y.shape)} of {y.dtype} "
            "do not fit: give images of one shape, and each labelled one a whole number from 0."
        )
    if neighbours > len(x):
        raise ValueError(f"there are no {neighbours} neighbours among {len(x)} labelled images: ask for fewer.")
    z = _codes(r, torch.cat([x, new.to(x)]), samples, False, seed)
    kinds, classes = y.cpu().numpy(), int(y.max()) + 1
    (votes,) = _votes(z[:, :, : len(x)], kinds, z[:, :, len(x) :], (neighbours,), classes)
    return torch.from_numpy(votes / votes.sum(1, keepdims=True)).float()


def _codes(r: Representation, x: Tensor, samples: int, pooled: bool, seed: int) -> np.ndarray:
    """Codes (spaces, codes of an image in each, N, K)."""
    generator = torch.Generator().manual_seed(seed)
    found = r.encode(x, samples, generator, batch_size=ROWS)
    z = found.codes(samples, generator) if bool(found.latent_variance.any()) else found.samples
    return z.unsqueeze(0 if pooled else 1).float().cpu().numpy()


def _splits(y: Tensor, classes: int, most: int, repeats: int, seed: int) -> Int[Tensor, "R C L"]:
    """The rows of the images that each repeat labels, nested in the number of labels."""
    generator = torch.Generator().manual_seed(seed)
    members = [(y == kind).nonzero().squeeze(1) for kind in range(classes)]
    return torch.stack(
        [
            torch.stack([rows[torch.randperm(len(rows), generator=generator)[:most]] for rows in members])
            for _ in range(repeats)
        ]
    )


def _best(labelled: np.ndarray, classes: int, neighbours: Sequence[int]) -> int:
    """The k of a cross-validation over images (classes × L of them, class by class)."""
    number = labelled.shape[2] // classes
    ks = tuple(k for k in neighbours if k <= _training(classes, number))
    if number == 1 or len(ks) == 1:
        return neighbours[0]
    kinds, folds = np.arange(classes).repeat(number), np.tile(np.arange(number) % FOLDS, classes)
    right = np.zeros(len(ks), dtype=int)
    for fold in range(min(FOLDS, number)):
        inside, outside = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        votes = _votes(labelled[:, :, inside], kinds[inside], labelled[:, :QUERIES, outside], ks, classes)
        right += (votes.argmax(-1) == kinds[outside]).sum(1)
    return ks[int(right.argmax())]


def _training(classes: int, number: int) -> int:
    """The smallest number of images that a cross-validation leaves for training."""
    return classes * (number - -(-number // FOLDS)) if number > 1 else classes


def _votes(labelled: np.ndarray, kinds: np.ndarray, queries: np.ndarray, ks: Sequence[int], classes: int) -> np.ndarray:
    """Counts (k, images, classes) of the classes of the nearest codes, summed over spaces and codes of an image."""
    from scipy.spatial import KDTree

    each, size = labelled.shape[1], queries.shape[2]
    found = np.zeros((len(ks), size, classes), dtype=int)
    labels = np.tile(kinds, each)
    for space, asked in zip(labelled, queries, strict=True):
        tree = KDTree(space.reshape(len(labels), -1))
        for codes in asked:
            for first in range(0, size, ROWS):
                part = codes[first : first + ROWS]
                near = labels[tree.query(part, max(ks) * each)[1].reshape(len(part), -1)]
                near += classes * np.arange(len(part))[:, None]
                for votes, k in zip(found, ks, strict=True):
                    counts = np.bincount(near[:, : k * each].ravel(), minlength=len(part) * classes)
                    votes[first : first + ROWS] += counts.reshape(-1, classes)
    return found


def _error(values: Float[Tensor, "L R"]) -> Float[Tensor, " L"]:
    repeats = values.shape[1]
    if repeats == 1:
        return torch.full_like(values[:, 0], torch.nan)
    return values.std(1) / repeats**0.5


def _numbered(x: Tensor, y: Tensor, test: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The classes, and both parts' classes numbered from 0, on the CPU."""
    for part, inputs, kinds in (("the pool", x, y), ("the test set", *test)):
        if len(inputs) != len(kinds) or not len(kinds):
            raise ValueError(f"{part} has {len(inputs)} images and {len(kinds)} classes: give each image one class.")
        require_inputs(inputs)
    if x.shape[1:] != test[0].shape[1:]:
        raise ValueError(
            f"the pool has images of shape {tuple(x.shape[1:])}, the test set of {tuple(test[0].shape[1:])}: resize "
            "them to one shape."
        )
    classes, numbers = y.cpu().unique(return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"there is only class {int(classes[0])} in the pool: classification needs at least two.")
    present = test[1].cpu().unique()
    missing = sorted(set(classes.tolist()) ^ set(present.tolist()))
    if missing:
        where = "the test set" if missing[0] in classes else "the pool"
        raise ValueError(
            f"class {missing[0]} is missing from {where}, so that accuracies would not be over all classes: pass test "
            "images of every class of the pool, and of no other."
        )
    return classes, numbers, torch.searchsorted(classes, test[1].cpu().contiguous())


def _require_numbers(labels: Sequence[int], neighbours: Sequence[int], repeats: int, samples: int) -> None:
    for name, values in {
        "labels": labels,
        "neighbours": neighbours,
        "repeats": (repeats,),
        "samples": (samples,),
    }.items():
        if not values or min(values) < 1:
            raise ValueError(
                f"{name} must be one or more numbers of at least 1, got {', '.join(map(str, values)) or 'none'}."
            )


def _require_images(classes: Tensor, y: Tensor, labels: Sequence[int], neighbours: Sequence[int]) -> None:
    counts = y.bincount()
    if int(counts.min()) < max(labels):
        fewest = int(counts.argmin())
        raise ValueError(
            f"class {int(classes[fewest])} has {int(counts[fewest])} images, and {max(labels)} are to be labelled: "
            "pass more images, or ask for fewer labels."
        )
    least = min(_training(len(classes), number) for number in labels)
    if neighbours[0] > least:
        raise ValueError(
            f"there are no {neighbours[0]} neighbours among {least} labelled images: add a smaller k to neighbours."
        )
