"""A refinement, written after each piece of work, for kills: python -m tests.faults.refinement FOLDER."""

import sys
from pathlib import Path

import torch
from torch import nn

import osculate as osc


def main(folder: Path) -> None:
    """Refine a posterior with a checkpoint, and save it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 10))
    x = torch.randn(2000, 8)
    data = x, model(x).argmax(-1)
    q = osc.laplace(model, osc.likelihoods.Categorical(), data, prior=1.0, refine=False)
    refined = osc.refine(q, trust=None, steps=4, checkpoint=folder / "refine.safetensors", every=1)
    osc.save(refined, folder / "posterior.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
