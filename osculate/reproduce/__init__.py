"""Tables and figures of the documents, measured again: one file each, a record each. See RESULTS.md."""

from osculate.reproduce import (
    lae_figure5,
    lae_figure7,
    lae_table2,
    lae_figure8,
    lae_figure1,
    lae_figure9,
    lae_figure10,
    lae_table3,
    lae_figure12,
    lae_table4,
    lae_memory,
    lae_table1,
    linlap_adapted,
    linlap_images,
    linlap_em,
    linlap_logistic,
    linlap_mackay,
    linlap_marglik,
    linlap_sampling,
    linlap_structures,
    linlap_subnetwork,
    linlap_uci_classification,
    linlap_uci,
    linlap_uci_gap,
)
from osculate.reproduce._base import Reproduction as Reproduction
from osculate.reproduce.record import Claim as Claim, Number as Number, Record as Record, read_record as read_record

#: The reproductions by id, as they are typed.
REGISTRY: dict[str, Reproduction] = {
    module.REPRODUCTION.id: module.REPRODUCTION
    for module in (
        lae_table1,
        lae_figure5,
        lae_figure7,
        lae_table2,
        lae_figure8,
        lae_figure1,
        lae_figure9,
        lae_figure10,
        lae_table3,
        lae_figure12,
        lae_table4,
        lae_memory,
        linlap_mackay,
        linlap_uci,
        linlap_uci_gap,
        linlap_marglik,
        linlap_sampling,
        linlap_subnetwork,
        linlap_logistic,
        linlap_em,
        linlap_structures,
        linlap_adapted,
        linlap_images,
        linlap_uci_classification,
    )
}
