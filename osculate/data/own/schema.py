"""The schema: what the columns or arrays of some data are, and the transform that the training rows define."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from osculate.data.own.array_inputs import ArrayInputs
from osculate.data.own.content import Content, Fingerprint, Labels, Wanted, listed
from osculate.data.own.opening import content_of
from osculate.data.own.table_inputs import TableInputs
from osculate.data.own.tables import NO_TARGET
from osculate.data.own.targets import Targets

#: Version of saved schemas.
FORMAT = 1


@dataclass(frozen=True)
class Schema:
    """Inputs and targets of some data, with the statistics of their training rows.

    Print it to see what was inferred; ``read`` applies it to other data.

    Args:
        inputs: The columns of a table, or the shape of arrays and images.
        targets: Names and classes of the targets; None for data of autoencoders.
        groups: Name of the column or array of the groups, or None.
        split_column: Name of the column or array with the part of each row, or None.
        source: Number and digest of the rows that were read, or None in schemas without.
        missing: Words of text files that count as missing beside empty cells, or None for the usual ones.
    """

    inputs: TableInputs | ArrayInputs
    targets: Targets | None = None
    groups: str | None = None
    split_column: str | None = None
    source: Fingerprint | None = field(default=None, compare=False)
    missing: tuple[str, ...] | None = None

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, or None."""
        return None if self.targets is None else self.targets.classes

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the F inputs from a table; empty for arrays."""
        return self.inputs.features if isinstance(self.inputs, TableInputs) else ()

    def open(
        self, data: Any, targets: bool = True, parts: bool = False, target: tuple[str, ...] | None = None
    ) -> Content:
        """The content of other data with the same columns or shapes.

        Args:
            data: A path or an object, as :func:`osculate.data.read` takes it.
            targets: False if the data need no targets.
            parts: True to look for groups and parts, which only data to train on need.
            target: Path of the .npy file of the targets; other names are those of the training, the default.

        Raises:
            ValueError: the targets have other names.
        """
        known = (NO_TARGET,) if self.targets is None else self.targets.names
        if target and target != known and not (self.targets is not None and target[0].endswith(".npy")):
            raise ValueError(
                f"target is {listed(target)}, and the schema of the training has {listed(known)}: leave target out, "
                "and name the column or array so."
            )
        names = () if self.targets is None else target or known
        wanted = Wanted(names, targets=targets and bool(names), parts=parts, missing=self.missing)
        if parts:
            wanted = replace(wanted, groups=self.groups, split_column=self.split_column)
        if isinstance(self.inputs, ArrayInputs) and len(self.inputs.shape) == 3:
            channels, height, width = self.inputs.shape
            wanted = replace(
                wanted,
                image_size=(height, width) if self.inputs.resized else None,
                channels=channels if channels in (1, 3) else None,
            )
        content = content_of(data, wanted)
        roles = [name for name in (self.groups, self.split_column) if name]
        if content.is_table and roles and not parts:
            content = replace(content, x=content.x.drop(columns=roles, errors="ignore"))
        return content

    def tensors(self, content: Content) -> tuple[Tensor, Tensor]:
        """Inputs and targets for a network and its likelihood; targets of shape (N, 0) where there are none.

        Raises:
            ValueError: columns, shapes or classes are not those of the training.
        """
        x = self.inputs.tensor(content)
        if self.targets is None or content.y is None:
            return x, torch.empty(len(x), 0)
        return x, self.targets.tensor(content.y, content.name)

    def read(self, data: Any, targets: bool = True) -> tuple[Tensor, Tensor]:
        """Inputs and targets of other data, transformed as the training rows were.

        Args:
            data: A path or an object, as :func:`osculate.data.read` takes it.
            targets: False if the data need no targets, which then have shape (N, 0).

        Raises:
            ValueError: columns, shapes, kinds or classes are not those of the training.

        Categories and missing values that training rows do not have are warned of.
        """
        return self.tensors(self.open(data, targets))

    def labels(self, content: Content) -> Labels:
        """Identifiers of the rows, by the name of their column, and names of files."""
        return self.inputs.labels(content)

    def __str__(self) -> str:
        """The columns or arrays, one line for each."""
        lines = list(self.inputs.lines())
        if self.targets is not None:
            lines.append((", ".join(self.targets.names), f"target: {self.targets}"))
        if self.groups is not None:
            lines.append((self.groups, "groups, not divided between training, validation and test"))
        if self.split_column is not None:
            lines.append((self.split_column, "part of each row"))
        width = min(max(len(name) for name, _ in lines), 40)
        return "\n".join([f"  {name:<{width}}  {text}" for name, text in lines])

    def content(self) -> dict[str, Any]:
        """Plain types for JSON, which :meth:`from_content` reads."""
        return {
            "format": FORMAT,
            "kind": "table" if isinstance(self.inputs, TableInputs) else "array",
            "inputs": self.inputs.content(),
            "targets": None if self.targets is None else self.targets.content(),
            "groups": self.groups,
            "split_column": self.split_column,
            "source": None if self.source is None else asdict(self.source),
            "missing": None if self.missing is None else list(self.missing),
        }

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> "Schema":
        """The schema that :meth:`content` has written.

        Raises:
            ValueError: it is damaged, or of another version.
        """
        if content.get("format") != FORMAT:
            raise ValueError(f"the schema has format {content.get('format')!r}, and {FORMAT} is read: train again.")
        try:
            inputs = TableInputs if content["kind"] == "table" else ArrayInputs
            targets = content["targets"]
            return cls(
                inputs.from_content(content["inputs"]),
                None if targets is None else Targets.from_content(targets),
                content["groups"],
                content["split_column"],
                None
                if (source := content.get("source")) is None
                else Fingerprint(int(source["rows"]), str(source["digest"])),
                None if (missing := content.get("missing")) is None else tuple(missing),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"the schema is damaged ({error!r}): train again.") from error
