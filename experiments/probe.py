"""Run one experiment with its tiny settings, in the working tree that this program is called in.

``python experiments/probe.py ID`` prints its numbers as JSON. It stands alone, so that it runs in trees of old commits.
"""

import json
import sys
from importlib import import_module
from pathlib import Path

import torch

#: Where a tree has its experiments, and the tests with their tiny settings; the present layout first.
LAYOUTS = (
    ("experiments", "tests.experiments.test_reproductions"),
    ("osculate.reproduce", "tests.reproduce.test_reproductions"),
)


def main(name: str) -> None:
    """Print the settings and numbers of an experiment with one seed."""
    torch.set_num_threads(1)
    # an installed package has the present layout whatever the tree
    experiments, tests = next(names for names in LAYOUTS if Path(*names[0].split(".")).is_dir())
    settings = import_module(tests).TINY[name]
    record = import_module(experiments).REGISTRY[name].run("small", 1, settings, progress=False)
    numbers = [list(number.values) for number in record.findings.numbers]
    json.dump({"settings": repr(settings), "numbers": numbers}, sys.stdout)


if __name__ == "__main__":
    sys.path.insert(0, "")
    main(sys.argv[1])
