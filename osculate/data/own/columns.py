"""Columns of a table: their kinds, and the numbers that a network gets for them."""

import re
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from osculate.data.dataset import Scaling
from osculate.data.own.content import listed
from osculate.registry import choose

#: Kinds of columns that become numbers, and what the user may name for a column.
NUMBER, CATEGORY, DATE, EXCLUDED = "number", "category", "date", "exclude"
KINDS = (NUMBER, CATEGORY, DATE, EXCLUDED)
#: Number of categories from which a column with different words in most rows is free text, and the largest number.
SEVERAL, MANY = 20, 100
#: Share of the rows with different words above which a column is free text.
DIFFERENT = 0.5
#: Share of numbers from which single words among them are taken for mistakes.
MOSTLY = 0.5
#: Names of identifiers.
NAMED = re.compile(r"(?i:(^|[_\s.-])(id|ids|idx|index|key|uuid|guid|rowid)$|^Unnamed: 0$)|[a-z](Id|ID)$")
#: What dates look like: year first, or day or month first.
ISO, OTHER = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ]|$)"), re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}( |$)")
#: Numbers with a decimal comma.
COMMA = re.compile(r"[-+]?\d+,\d+")
#: Distance of the median of new numbers from the training mean, in its standard deviations, that is warned of.
FAR = 10.0


@dataclass(frozen=True)
class Column:
    """One column, and the numbers it becomes.

    Args:
        name: The name.
        kind: A name from :data:`KINDS`.
        reason: Reason why it is left out, or "".
        categories: Words of a category in the training rows, in order; each has its own 0 or 1.
        missing: True if training rows lack values, so that "missing" has its own 0 or 1.
        fill: The mean over the training rows, in place of missing numbers.
        scaling: Number that is subtracted, and number that is divided by.
    """

    name: str
    kind: str
    reason: str = ""
    categories: tuple[str, ...] = ()
    missing: bool = False
    fill: float = 0.0
    scaling: tuple[float, float] = (0.0, 1.0)

    @classmethod
    def of(cls, series: Any, chosen: str | None, source: str) -> "Column":
        """The kind of a column, by its values or as the user has chosen.

        Raises:
            ValueError: numbers are mixed with words, have decimal commas or are not finite; or the choice is unknown
                or does not fit.
        """
        name = str(series.name)
        if chosen is None:
            return cls(name, *_kind_of(series, source))
        kind = choose(f"kind of the column {name!r}", chosen, KINDS)
        if kind == EXCLUDED:
            return cls(name, kind, "excluded")
        if kind == NUMBER:
            numbers(series, source)
        if kind == DATE:
            days(series, source)
        return cls(name, kind)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the numbers that a network gets."""
        if self.reason:
            return ()
        own = [f"{self.name}={word}" for word in self.categories] if self.kind == CATEGORY else [self.name]
        return (*own, *([f"{self.name} is missing"] if self.missing else []))

    def fitted(self, series: Any, source: str, standardise: bool) -> "Column":
        """The column with the statistics of these rows, which are those for training."""
        if self.reason:
            return self
        if self.kind == CATEGORY:
            words = texts(series)
            known = sorted(set(words.dropna()), key=by_number)
            if not known:
                return replace(self, reason="no values in the training rows")
            if len(known) > 10 * MANY:
                raise ValueError(
                    f"the column {self.name!r} of {source} has {len(known):,} categories, each of which is an input of "
                    f"the network: leave it out (columns={{{self.name!r}: 'exclude'}}), or write coarser ones."
                )
            return replace(self, categories=tuple(known), missing=bool(words.isna().any()))
        values = self._values(series, source)
        missing = np.isnan(values)
        if missing.all():
            return replace(self, reason="no values in the training rows")
        scaling = Scaling.of(torch.from_numpy(values[~missing])[:, None])
        mean = float(scaling.mean)
        chosen = (mean, float(scaling.scale)) if standardise else (0.0, 1.0)
        return replace(self, fill=mean, missing=bool(missing.any()), scaling=chosen)

    def _values(self, series: Any, source: str) -> np.ndarray:
        return days(series, source) if self.kind == DATE else numbers(series, source)

    def encoded(self, series: Any, source: str) -> np.ndarray:
        """The numbers of some rows (N, F), in float64; the code warns of what the training rows do not have.

        Raises:
            ValueError: there are words where training had numbers.
        """
        if self.kind == CATEGORY:
            words = texts(series)
            result = np.stack([(words == word).to_numpy(dtype=bool, na_value=False) for word in self.categories], 1)
            missing = words.isna().to_numpy(dtype=bool)
            strange = words[~missing & ~result.any(1)]
            if len(strange):
                warnings.warn(
                    f"the column {self.name!r} of {source} holds {listed(sorted(set(strange)), 5)} in {len(strange)} "
                    f"rows, which training rows do not: they count as none of {listed(self.categories, 5)}.",
                    stacklevel=2,
                )
        else:
            values = self._values(series, source)
            missing = np.isnan(values)
            mean, scale = self.scaling
            result = ((np.where(missing, self.fill, values) - mean) / scale)[:, None]
            self._compare(result[~missing], source)
        if self.missing:
            result = np.concatenate([result, missing[:, None]], 1)
        elif missing.any():
            instead = "it counts as no category" if self.kind == CATEGORY else "the training mean is filled in"
            rows = "1 row" if missing.sum() == 1 else f"{missing.sum()} rows"
            warnings.warn(
                f"the column {self.name!r} of {source} is missing in {rows}, and in no training row: {instead}.",
                stacklevel=2,
            )
        return result.astype(np.float64)

    def _compare(self, standardised: np.ndarray, source: str) -> None:
        """Warn of numbers far from those of training."""
        middle = float(np.median(standardised)) if len(standardised) else 0.0
        if abs(middle) > FAR and self.scaling != (0.0, 1.0):
            mean, scale = self.scaling
            warnings.warn(
                f"the median of the column {self.name!r} in {source} is {middle * scale + mean:.4g}, "
                f"{abs(middle):.0f} standard deviations from the training mean {mean:.4g}: check its unit.",
                stacklevel=2,
            )

    def __str__(self) -> str:
        """One line for the print-out of a schema."""
        if self.reason:
            return f"left out: {self.reason}"
        also = ", and whether it is missing" if self.missing else ""
        if self.kind == CATEGORY:
            return f"category, {len(self.categories)} columns of 0 and 1: {listed(self.categories, 8)}{also}"
        mean, scale = self.scaling
        what = "date, in days since 1970" if self.kind == DATE else "number"
        how = "" if self.scaling == (0.0, 1.0) else f", standardised: mean {mean:.4g}, standard deviation {scale:.4g}"
        return f"{what}{how}{also}"


def _kind_of(series: Any, source: str) -> tuple[str, str]:
    """Kind of a column, and the reason to leave it out or ""."""
    import pandas as pd

    present = series.dropna()
    if not len(present):
        return EXCLUDED, "no values"
    if pd.api.types.is_datetime64_any_dtype(series):
        return DATE, "a date"
    if pd.api.types.is_bool_dtype(series):
        return NUMBER, ""
    if pd.api.types.is_numeric_dtype(series):
        values = numbers(series, source)
        values = values[~np.isnan(values)]
        whole = bool((values == np.round(values)).all())
        if whole and len(np.unique(values)) == len(series) and NAMED.search(str(series.name)):
            return NUMBER, "an identifier"
        same = len(np.unique(values)) < 2 and len(values) == len(series)  # else whether it is missing tells something
        return NUMBER, "constant" if same else ""
    if any(isinstance(value, list | tuple | dict | np.ndarray | bytes) for value in present.head(100)):
        return EXCLUDED, "lists, mappings or bytes, which are no single values"
    return _kind_of_words(texts(present), len(series), source)


def _kind_of_words(words: Any, rows: int, source: str) -> tuple[str, str]:
    head = words.head(200)
    for pattern in (ISO, OTHER):
        if all(pattern.match(word) for word in head):
            return DATE, "a date"
    if set(words) <= {"True", "False"}:
        return NUMBER, ""
    _require_no_stray_words(words, source)
    different = words.nunique()
    if different < 2 and len(words) == rows:
        return CATEGORY, "constant"
    if different == rows and NAMED.search(str(words.name)):
        return CATEGORY, "an identifier"
    if different > SEVERAL and different > DIFFERENT * len(words):
        return CATEGORY, f"an identifier or free text, {different:,} different words in {len(words):,} rows"
    if different > MANY:
        return CATEGORY, f"{different:,} categories, more than {MANY}"
    return CATEGORY, ""


def _require_no_stray_words(words: Any, source: str) -> None:
    """Raise ValueError for numbers that were read as words."""
    import pandas as pd

    commas = words.map(lambda word: bool(COMMA.fullmatch(word)))
    if commas.mean() > MOSTLY:
        raise ValueError(
            f"the column {words.name!r} of {source} has decimal commas, as in {words[commas].iloc[0]!r}: use points."
        )
    strays = pd.to_numeric(words, errors="coerce").isna()
    if strays.any() and strays.mean() < 1 - MOSTLY:
        raise ValueError(
            f"the column {words.name!r} of {source} holds numbers, and {words[strays].iloc[0]!r} in row "
            f"{_row(words[strays].index[0])}: mend such cells or leave them empty, or name its kind with "
            f"columns={{{words.name!r}: 'category'}}."
        )


def _row(index: Any) -> int:
    """The number of a row, from 1, without the header."""
    return int(index) + 1


def texts(series: Any) -> Any:
    """Values as words, missing ones as None; whole numbers without a decimal point, whatever their type."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(series) or not pd.api.types.is_numeric_dtype(series):
        return series.astype(object).map(_word, na_action="ignore").astype("string")
    return series.astype(object).map(_number_word, na_action="ignore").astype("string")


def _word(value: Any) -> str:
    return _number_word(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value).strip()


def _number_word(value: Any) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def by_number(word: str) -> tuple[bool, float, str]:
    """The order of words: numbers by their size, then others by the alphabet."""
    try:
        return False, float(word), word
    except ValueError:
        return True, 0.0, word


def numbers(series: Any, source: str) -> np.ndarray:
    """Values as float64, missing ones as NaN.

    Raises:
        ValueError: there are words, or infinite numbers.
    """
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(series) or pd.api.types.is_complex_dtype(series):
        raise ValueError(f"the column {series.name!r} of {source} holds {series.dtype}, and not real numbers.")
    if not pd.api.types.is_numeric_dtype(series):
        words = texts(series).replace({"True": "1", "False": "0"})
        found = pd.to_numeric(words, errors="coerce")
        strange = found.isna() & words.notna()
        if strange.any():
            first = words[strange]
            raise ValueError(
                f"the column {series.name!r} of {source} must hold numbers, and has {first.iloc[0]!r} in row "
                f"{_row(first.index[0])}: mend such cells or leave them empty."
            )
        series = found
    values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isinf(values).any():
        raise ValueError(
            f"the column {series.name!r} of {source} is infinite in row {int(np.isinf(values).argmax()) + 1}: leave "
            "such cells empty."
        )
    return values


def days(series: Any, source: str) -> np.ndarray:
    """Dates as days since 1970, missing ones as NaN.

    Raises:
        ValueError: there is something else, or it is not clear which number is the day.
    """
    import pandas as pd

    if not pd.api.types.is_datetime64_any_dtype(series):
        words = texts(series)
        strange = words.notna() & ~words.map(lambda word: bool(ISO.match(word)), na_action="ignore").fillna(False)
        if strange.any():
            first = words[strange]
            raise ValueError(
                f"the column {series.name!r} of {source} has {first.iloc[0]!r} in row {_row(first.index[0])}, which is "
                "no date with the year first: write dates as 2025-01-31."
            )
        try:
            series = pd.to_datetime(words, format="ISO8601", utc=True)
        except ValueError as error:
            raise ValueError(f"the column {series.name!r} of {source} has a wrong date ({error}): mend it.") from error
    if series.dt.tz is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    return ((series - pd.Timestamp(0)) / pd.Timedelta(days=1)).to_numpy(dtype=np.float64, na_value=np.nan)
