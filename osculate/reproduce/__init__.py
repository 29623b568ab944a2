"""Tables and figures of the documents, measured again: one file each, a record each. See RESULTS.md."""

from importlib import import_module

from osculate.reproduce._base import Reproduction as Reproduction
from osculate.reproduce.record import Claim as Claim, Number as Number, Record as Record, read_record as read_record

#: One module each, in the order of RESULTS.md.
MODULES = (
    "lae_table1",
    "lae_figure5",
    "lae_figure7",
    "lae_table2",
    "lae_figure8",
    "lae_figure1",
    "lae_figure9",
    "lae_figure10",
    "lae_table3",
    "lae_figure12",
    "lae_table4",
    "lae_figure13",
    "lae_memory",
    "linlap_mackay",
    "linlap_uci",
    "linlap_uci_gap",
    "linlap_marglik",
    "linlap_sampling",
    "linlap_subnetwork",
    "linlap_logistic",
    "linlap_em",
    "linlap_structures",
    "linlap_adapted",
    "linlap_images",
    "linlap_uci_classification",
    "dip_choices",
    "dip_kmnist",
    "dip_calibration",
    "dip_ard",
    "dip_large",
    "vl_table1",
    "vl_figure1",
    "vl_figure2",
    "vl_table2",
    "l2m_figure1",
    "l2m_uci",
    "l2m_classification",
    "methods",
    "aevb_figure2",
    "aevb_figure3",
    "aevb_figure4",
    "aevb_figure5",
    "aevb_figure6",
    "aevb_figure7",
    "aevb_figure8",
    "aevb_full_vb",
    "aevb_priors",
    "aevb_implicit",
    "aevb_dvae",
)

_found: list[Reproduction] = [import_module(f"{__name__}.{name}").REPRODUCTION for name in MODULES]
#: The reproductions by id, as they are typed.
REGISTRY: dict[str, Reproduction] = {each.id: each for each in _found}
#: Figures that come with a table.
ALIASES = {"lae-figure11": "lae-table3"}
