"""The rule of verdicts: intervals of paired differences over seeds against a margin, and chances of a wrong verdict."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, hypot, inf, log, sqrt
from statistics import mean, stdev

#: Chance of a wrong verdict of one claim in either direction; an interval of 1 - 2 LEVEL decides.
LEVEL = 0.05
#: Least chance of a wrong verdict that differs from none, and halvings of its logarithm.
LEAST, HALVINGS = 1e-12, 40


@dataclass(frozen=True)
class Sample:
    """Differences of pairs, one for each seed or split.

    Args:
        values: The differences.
        shared: Standard error of their mean over test data that all seeds share, see :mod:`experiments.paired`.
        overlap: Size of the test data over that of the training data, for splits of one set; the variance of the mean
            is then s² (1/n + overlap) [nadeau2003].
    """

    values: tuple[float, ...]
    shared: float = 0.0
    overlap: float = 0.0

    @cached_property
    def mean(self) -> float:
        """Mean difference."""
        return mean(self.values)

    @property
    def error(self) -> float:
        """Standard error of the mean, infinite for a single value."""
        return hypot(self.over_seeds, self.shared) if len(self.values) > 1 else inf

    @cached_property
    def over_seeds(self) -> float:
        """The part of the standard error that the values tell."""
        return stdev(self.values) * sqrt(1 / len(self.values) + self.overlap)

    @property
    def negative(self) -> "Sample":
        """The differences the other way round."""
        return replace(self, values=tuple(-value for value in self.values))

    def reach(self, chance: float) -> float:
        """Return how far above the true mean the mean is with a chance of at most ``chance``.

        The estimated error over seeds counts by the t-distribution, the known one over test data by the normal one;
        both are added as errors are. One distribution with degrees of freedom between (Satterthwaite) rejects a true
        null too often, as those degrees are estimated from the few seeds themselves.
        """
        from scipy.special import ndtri, stdtrit

        few = len(self.values) - 1
        return hypot(float(stdtrit(few, 1 - chance)) * self.over_seeds, float(ndtri(1 - chance)) * self.shared)

    def interval(self, level: float = 1 - 2 * LEVEL) -> tuple[float, float]:
        """Return the interval of the mean; the whole line for a single value.

        >>> low, high = Sample((1.0, 2.0, 3.0, 4.0, 5.0)).interval()  # 2.13 standard errors around 3
        >>> round(low, 3), round(high, 3)
        (1.493, 4.507)
        """
        if len(self.values) < 2:
            return -inf, inf
        reach = self.reach((1 - level) / 2)
        return self.mean - reach, self.mean + reach

    def chance(self, bound: float) -> float:
        """Return the chance of a mean so far above a bound, if the true one is not above it; 1 for a single value."""
        from scipy.special import stdtr

        if len(self.values) < 2:
            return 1.0
        apart = self.mean - bound
        if self.error == 0:
            return float(apart <= 0)
        if self.shared == 0:
            return float(stdtr(len(self.values) - 1, -apart / self.over_seeds))
        if apart <= 0:
            return 1 - self.negative.chance(-bound) if apart else 0.5
        low, high = log(LEAST), log(0.5)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.reach(exp(middle)) > apart else (low, middle)
        return exp(high)


@dataclass(frozen=True)
class Evidence:
    """Chances of what was seen: if the claim were false, and if it were true.

    Args:
        false: Largest chance of data that speak so much for the claim, over all ways in which it is false.
        true: The same of data that speak so much against it, where it is true.
    """

    false: float
    true: float

    @classmethod
    def above(cls, sample: Sample, bound: float) -> "Evidence":
        """Judge that the true mean is above a bound."""
        return cls(sample.chance(bound), sample.negative.chance(-bound))

    @classmethod
    def within(cls, sample: Sample, bound: float) -> "Evidence":
        """Judge that the true mean is nearer to zero than a bound, by two one-sided tests."""
        low, high = cls.above(sample, -bound), cls.above(sample, bound)
        return cls(max(low.false, high.true), min(1.0, 2 * min(low.true, high.false)))

    @classmethod
    def all(cls, parts: Iterable["Evidence"]) -> "Evidence":
        """Judge that every part of a claim holds: each must be shown, and one that is refuted counts for their number.

        Raises:
            ValueError: There is no part.
        """
        found = list(parts)
        if not found:
            raise ValueError("a claim without parts has no evidence: name the values that decide.")
        return cls(max(part.false for part in found), min(1.0, len(found) * min(part.true for part in found)))

    def times(self, looks: int) -> "Evidence":
        """Return the evidence of the last of several looks at growing data."""
        return Evidence(min(1.0, looks * self.false), min(1.0, looks * self.true))

    def verdict(self, level: float = LEVEL) -> bool | None:
        """Return True if the claim holds, False if it does not, and None if it is undecided."""
        return True if self.false < level else False if self.true < level else None


def holm(family: Sequence[Evidence], level: float = LEVEL) -> list[bool | None]:
    """Return the verdicts of a family of claims, of which any is wrong with a chance of at most twice the level.

    The clearest must be clear at level / n, the next at level / (n - 1), and so on; those after the first that is not
    are undecided [holm1979].

    >>> holm([Evidence(0.04, 1.0), Evidence(0.01, 1.0), Evidence(0.9, 0.02)])
    [True, True, False]
    >>> holm([Evidence(0.04, 1.0), Evidence(0.03, 1.0)])
    [None, None]
    """
    clearest: Callable[[int], float] = lambda index: min(family[index].false, family[index].true)  # noqa: E731
    found: list[bool | None] = [None] * len(family)
    for rank, index in enumerate(sorted(range(len(family)), key=clearest)):
        found[index] = family[index].verdict(level / (len(family) - rank))
        if found[index] is None:
            break
    return found
