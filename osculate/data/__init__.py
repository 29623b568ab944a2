"""Data sets: found or downloaded, split, scaled and returned as tensors.

``read`` returns the user's own tables, arrays and images with their schema, ``load`` public sets by name,
``out_of_distribution`` inputs on which a classifier should be uncertain, and ``rotated`` and ``corrupted`` inputs on
which it should be increasingly so.
``stream`` reads files that do not fit into memory batch by batch.
"""

from osculate.data.corruptions import CORRUPTIONS as CORRUPTIONS, corrupted as corrupted
from osculate.data.dataset import Dataset as Dataset, Scaling as Scaling
from osculate.data.loading import REGISTRY as REGISTRY, load as load
from osculate.data.own import OwnData as OwnData, Schema as Schema, read as read
from osculate.data.phantoms import rectangles as rectangles, shepp_logan as shepp_logan
from osculate.data.shifted import (
    out_of_distribution as out_of_distribution,
    rotated as rotated,
    shuffled_pixels as shuffled_pixels,
)
from osculate.data.streaming import stream as stream
