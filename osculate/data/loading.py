"""Data sets by name."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from osculate.data import frey_face, mnist, photographs, toys, uci
from osculate.data.dataset import Dataset, Request, Source, assemble
from osculate.registry import choose, lookup

#: Readers by name. A new data set is one row.
REGISTRY: Mapping[str, Callable[[Request], Source]] = {
    "digits": toys.digits,
    "diabetes": toys.diabetes,
    "two_moons": toys.two_moons,
    "sine": toys.sine,
    "cubic": toys.cubic,
    **{name: partial(toys.published, name) for name in toys.PUBLISHED},
    **{name: partial(mnist.mnist_family, name) for name in mnist.FAMILY},
    "cifar10": photographs.cifar10,
    "cifar10_jpeg": photographs.cifar10_jpeg,
    "cifar100": photographs.cifar100,
    "svhn": photographs.svhn,
    "frey_face": frey_face.frey_face,
    **{name: partial(uci.uci, name) for name in uci.NAMES},
    **{name: partial(uci.uci_classification, name) for name in uci.CLASSIFICATION},
}

#: The kinds of splits of sets that come in several.
SPLITS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(uci.NAMES, ("standard", "gap")),
    **dict.fromkeys(uci.CLASSIFICATION, ("standard",)),
    "frey_face": ("standard", "random"),
}


def load(
    name: str,
    *,
    folder: str | Path | None = None,
    train_size: int | None = None,
    validation_size: int | None = None,
    split: int = 0,
    splits: str = "standard",
    seed: int = 0,
) -> Dataset:
    """Load a data set by its name, ready for training.

    Files are looked for in ``folder`` only, if it is given; otherwise in the folder named by the environment
    variable ``OSCULATE_DATA``, then in the user's cache, and last the public original is downloaded into the
    cache where there is one with a known checksum. "digits", "diabetes", "two_moons", "sine" and "cubic" need no
    file.

    Args:
        name: A key of :data:`REGISTRY`.
        folder: The only folder to look into.
        train_size: Rows to train on; None, or more than the validation part leaves, takes all that are left.
        validation_size: Rows taken from the training data for validation; None takes a tenth, at most 2,000, or the
            validation part that comes with the split: UCI classification sets have one.
        split: Number of the split, for UCI sets.
        splits: Kind of the splits of UCI sets, "standard" or, in regression, "gap"; for gap splits, ``split`` is the
            input that the gap lies in. For "frey_face", "standard" (the end of the film is for testing) or "random"
            (by the seed).
        seed: Chooses the validation rows and everything else that is random (for the sets without a test part
            of their own, the test rows too).

    Raises:
        FileNotFoundError: a file is in none of the places; the message lists them and says what to set.
        ValueError: an unknown name, split or size, or a damaged file.

    >>> load("digits")
    Dataset('digits', train=1078, validation=119, test=600, input_shape=(1, 8, 8), outputs=10)
    """
    reader = lookup("data set", name, REGISTRY)
    if name not in SPLITS and (split != 0 or splits != "standard"):
        raise ValueError(f"{name!r} has one split only, so split={split} and splits={splits!r} mean nothing; use seed.")
    choose(f"kind of splits of {name!r}", splits, SPLITS.get(name, ("standard",)))
    return assemble(name, reader(Request(folder, split, splits, seed)), train_size, validation_size, seed)
