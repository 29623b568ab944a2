"""Tables and figures of the documents, measured again: one file each, a record each. See RESULTS.md."""

from importlib import import_module

from experiments.experiment import Reproduction as Reproduction
from experiments.record import Claim as Claim, Number as Number, Record as Record, read_record as read_record

#: One module each, in the order of RESULTS.md.
MODULES = (
    "lae.table1",
    "lae.figure5",
    "lae.figure7",
    "lae.table2",
    "lae.figure8",
    "lae.figure1",
    "lae.figure9",
    "lae.figure10",
    "lae.table3",
    "lae.figure12",
    "lae.table4",
    "lae.figure13",
    "lae.memory",
    "linlap.mackay",
    "linlap.uci",
    "linlap.uci_gap",
    "linlap.marglik",
    "linlap.sampling",
    "linlap.subnetwork",
    "linlap.logistic",
    "linlap.em",
    "linlap.structures",
    "linlap.adapted",
    "linlap.images",
    "linlap.uci_classification",
    "dip.choices",
    "dip.kmnist",
    "dip.calibration",
    "dip.ard",
    "dip.large",
    "vl.table1",
    "vl.figure1",
    "vl.figure2",
    "vl.table2",
    "l2m.figure1",
    "l2m.uci",
    "l2m.classification",
    "methods.comparison",
    "aevb.figure2",
    "aevb.figure3",
    "aevb.figure4",
    "aevb.figure5",
    "aevb.figure6",
    "aevb.figure7",
    "aevb.figure8",
    "aevb.full_vb",
    "aevb.priors",
    "aevb.implicit",
    "aevb.dvae",
)

_found: list[Reproduction] = [import_module(f"{__name__}.{name}").REPRODUCTION for name in MODULES]
#: The reproductions by id, as they are typed.
REGISTRY: dict[str, Reproduction] = {each.id: each for each in _found}
#: Figures that come with a table.
ALIASES = {"lae-figure11": "lae-table3"}
