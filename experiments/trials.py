"""Scales that need an accelerator, tried for three steps of each training: few images, and all else as it would be."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments.vl import table1

#: Images that make three batches of 50, and numbers of held-out and test images.
FEW = {"train_size": 150, "validation_size": 50, "test_size": 50}
#: One epoch of these.
ONCE = {"epochs": 1, "members": 2, "dropout": [0.05]}
#: Part of Figure 9.
PAIR = {"pairs": (("mnist", "KMNIST", 150),), "samples": 2, "usual": 50}


def _short(scale: str) -> tuple[table1.Part, ...]:
    """Return the parts of a scale of Table 1 for three steps of MAP and variational Laplace, at one temperature."""
    return tuple(
        replace(
            part,
            task=replace(part.task, train_size=3 * part.fit.batch_size, validation_size=50, test_size=50),
            methods=methods,
            fit=replace(part.fit, epochs=1, precision="32"),  # bf16 is emulated, and slow, on many CPUs
            temperatures=(0.1,),
        )
        for part in table1.measure.presets[scale].parts
        if (methods := tuple(method for method in (table1.MAXIMUM, table1.LAPLACE) if method in part.methods))
    )


#: Changes that leave three steps, by experiment and scale.
TRIALS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("vl-table1", "narrow"): {"parts": _short("narrow")},
    ("vl-table1", "large"): {"parts": _short("large")},
    ("lae-table2", "paper"): {**FEW, "fit": ONCE, "columns": 50, "samples": 2, "curve_samples": 2},
    ("lae-figure9", "convolutional"): {**FEW, **PAIR, "fit": ONCE},
    ("linlap-images", "large"): {
        "training": {"images": 384, "epochs": 1},
        "held_out": {"validation": 50, "test": 50, "outside": 50},
        "precisions": (1.0, 10.0),
        "samples": 2,
    },
}


def scales(name: str) -> list[str]:
    """Return the scales of an experiment that are tried and were not run."""
    return [scale for each, scale in TRIALS if each == name]
