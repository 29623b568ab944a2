"""Fits that go on where they were interrupted, and end with the same bits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.posteriors.resumable import interval
from tests.errors import says

BATCHES = [(torch.randn(6, 4), torch.randint(3, (6,))) for _ in range(7)]
LIKELIHOOD = osc.likelihoods.Categorical()


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).eval()


class Breaks(list):
    """Batches that are interrupted in some pass."""

    def __init__(self, batches: list, after: int, in_pass: int = 0) -> None:
        super().__init__(batches)
        self.after, self.passes, self.in_pass = after, 0, in_pass

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.passes += 1
        yield from list.__iter__(self if self.passes != self.in_pass + 1 else self[: self.after])
        if self.passes == self.in_pass + 1:
            raise KeyboardInterrupt


def fit(data: Any, structure: Any = "kron", **options: Any) -> osc.posteriors.Gaussian:
    seeded = {"curvature": osc.curvature.Fisher(generator=torch.Generator().manual_seed(3))}
    curvature = seeded if options.pop("sampled", False) else {}
    return osc.laplace(
        network(), LIKELIHOOD, data, structure=structure, prior=1.0, refine=False, **curvature, **options
    )


def interrupted(path: Path, after: int = 4, in_pass: int = 0, **options: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(Breaks(BATCHES, after, in_pass), checkpoint=path, every=1, **options)
    assert path.exists()


CASES = [name for name, kind in osc.structures.REGISTRY.items() if kind.resumes]


@pytest.mark.parametrize("after", [1, 4, 7])
@pytest.mark.parametrize("structure", CASES)
def test_a_resumed_fit_has_the_same_bits(structure: str, after: int, tmp_path: Path) -> None:
    path, whole = tmp_path / "fit.ckpt", fit(BATCHES, structure)
    interrupted(path, after, structure=structure)
    again = fit(BATCHES, structure, checkpoint=path, every=1)
    for name, tensor in whole.structure.tensors().items():
        assert torch.equal(again.structure.tensors()[name], tensor)
    assert again.num_data == whole.num_data
    assert all(torch.equal(again.fit.statistics[name], each) for name, each in whole.fit.statistics.items())
    assert not list(tmp_path.iterdir()), "nothing is left behind"


@pytest.mark.parametrize("after", [1, 4])
def test_in_the_second_pass(after: int, tmp_path: Path) -> None:
    path, whole = tmp_path / "fit.ckpt", fit(BATCHES, "ekfac")
    interrupted(path, after, 1, structure="ekfac")
    again = fit(BATCHES, "ekfac", checkpoint=path)
    assert all(torch.equal(again.structure.tensors()[name], each) for name, each in whole.structure.tensors().items())


def test_sampled_labels_go_on(tmp_path: Path) -> None:
    path, whole = tmp_path / "fit.ckpt", fit(BATCHES, sampled=True)
    interrupted(path, sampled=True)
    again = fit(BATCHES, checkpoint=path, sampled=True)
    assert all(torch.equal(again.structure.tensors()[name], each) for name, each in whole.structure.tensors().items())


def test_the_file_is_written_at_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    monkeypatch.setattr("osculate.posteriors.resumable.write_tensors", lambda *_: written.append(1))
    for every, expected in ((3, 3), (1, 7), ("5min", 1), ("0.000001s", 7)):  # once more at the end
        written.clear()
        fit(BATCHES, checkpoint=tmp_path / "fit.ckpt", every=every)
        assert len(written) == expected


def test_other_data_settings_and_networks_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "fit.ckpt"
    interrupted(path)
    other = [(x + 1, y) for x, y in BATCHES]
    hidden = [(x.index_fill(0, torch.tensor([3]), 2.0), y) for x, y in BATCHES]
    for data in (other, BATCHES[::-1], [(x[:5], y[:5]) for x, y in BATCHES], BATCHES[:3], hidden):
        with pytest.raises(ValueError, match=says("other data", "remove the file")):
            fit(data, checkpoint=path)
    with pytest.raises(ValueError, match=says("structure=", "Diag", "remove the file")):
        fit(BATCHES, "diag", checkpoint=path)
    with pytest.raises(ValueError, match=says("weights=", "remove the file")):
        osc.laplace(network(1), LIKELIHOOD, BATCHES, prior=1.0, refine=False, checkpoint=path)
    relu = nn.Sequential(*(nn.ReLU() if isinstance(layer, nn.Tanh) else layer for layer in network())).eval()
    with pytest.raises(ValueError, match=says("network=", "remove the file")):
        osc.laplace(relu, LIKELIHOOD, BATCHES, prior=1.0, refine=False, checkpoint=path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match=says("truncated")):
        fit(BATCHES, checkpoint=path)
    for structure in ("dual", "matrix_free"):
        with pytest.raises(ValueError, match=says(structure, "without checkpoint")):
            fit(BATCHES, structure, checkpoint=tmp_path / "other.ckpt")


@pytest.mark.parametrize("every", [0, -3, True, "5", "often", "0s"])
def test_intervals(every: Any) -> None:
    with pytest.raises(ValueError, match=says("every", "5min")):
        interval(every)
