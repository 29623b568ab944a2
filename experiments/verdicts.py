"""What differences over seeds say."""

from collections.abc import Iterable, Sequence
from statistics import mean, stdev


def clearly(differences: Sequence[float]) -> bool | None:
    """Whether their mean is above zero by more than two standard errors; None for fewer than two, which cannot tell.

    >>> clearly([1.0, 1.2]), clearly([1.0, -1.2]), clearly([5.0])
    (True, False, None)
    """
    if len(differences) < 2:
        return None
    return mean(differences) > 2 * stdev(differences) / len(differences) ** 0.5


def together(verdicts: Iterable[bool | None]) -> bool | None:
    """Whether all hold: None where there are none, or one is not tested and no other fails.

    >>> together([True, None]), together([False, None]), together([])
    (None, False, None)
    """
    found = list(verdicts)
    return False if False in found else None if None in found or not found else True
