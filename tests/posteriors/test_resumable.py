"""Fits that go on where they were interrupted, and end with the same bits."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import osculate as osc
from osculate.batches import fingerprint
from osculate.posteriors.resumable import Checkpoint, interval
from tests.errors import says

ROOT = Path(__file__).parents[2]
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


@pytest.mark.slow
def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "fit.ckpt"
    with Checkpoint(path, 1), pytest.raises(ValueError, match=says("fit.ckpt", "in use", "its own file")):
        fit(BATCHES, checkpoint=path)
    code = f"from osculate.files import locked\nfrom pathlib import Path\nwith locked(Path({str(path)!r})): pass"
    with Checkpoint(path, 1):
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert other.returncode
    assert "in use" in other.stderr
    fit(BATCHES, checkpoint=path)
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_a_loader_that_shuffles_unseeded_is_warned_of(tmp_path: Path) -> None:
    data = TensorDataset(torch.cat([x for x, _ in BATCHES]), torch.cat([y for _, y in BATCHES]))
    with pytest.warns(UserWarning, match="shuffles by torch's own random numbers"):
        fit(DataLoader(data, shuffle=True), checkpoint=tmp_path / "fit.ckpt")
    seeded = DataLoader(data, shuffle=True, generator=torch.Generator().manual_seed(0))
    fit(seeded, checkpoint=tmp_path / "fit.ckpt")


class Stops(Exception):
    """An interruption."""


@contextmanager
def stopping(monkeypatch: pytest.MonkeyPatch, after: int) -> Iterator[None]:
    """Interrupt a computation after some pieces of work."""
    whole, pieces = Checkpoint.keep, []

    def keep(self: Checkpoint, name: str, reached: Any, piece: bool = True) -> None:
        whole(self, name, reached, piece)
        pieces.extend([name] * piece)
        if len(pieces) >= after:
            raise Stops

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "keep", keep)
        yield


def assert_same(one: osc.posteriors.Gaussian, other: osc.posteriors.Gaussian) -> None:
    assert torch.equal(one.mean, other.mean)
    assert all(torch.equal(one.structure.tensors()[name], each) for name, each in other.structure.tensors().items())
    assert torch.equal(one.precision.log_det_ratio(), other.precision.log_det_ratio())
    if one.likelihood.has_noise:
        assert torch.equal(torch.as_tensor(one.likelihood.scale), torch.as_tensor(other.likelihood.scale))


REGRESSION = [(x, torch.randn(len(x), 3)) for x, _ in BATCHES]
#: Refinements by name: likelihood, data, structure, and options.
REFINEMENTS: dict[str, tuple[Any, list, str, dict[str, Any]]] = {
    "classes": (LIKELIHOOD, BATCHES, "kron", {}),
    "several steps": (LIKELIHOOD, BATCHES, "full", {"trust": None, "steps": 3}),
    "two passes": (LIKELIHOOD, BATCHES, "ekfac", {"steps": 2}),
    "noise": (osc.likelihoods.Gaussian(2.0), REGRESSION, "kron", {"trust": None, "noise": True}),
    "rows": (osc.likelihoods.Gaussian(2.0), REGRESSION, "dual", {"trust": None}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.release] * (name == "several steps")) for name in REFINEMENTS]
)
def test_a_resumed_refinement_has_the_same_bits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted after the first piece of work, then after the next three of those that are left, and so on."""
    likelihood, data, structure, options = REFINEMENTS[name]
    monkeypatch.setattr("osculate.evidence.variational.CHUNK", 1)  # batches are not joined
    q = osc.laplace(network(), likelihood, data, structure=structure, prior=1.0, refine=False)
    path, whole = tmp_path / "refine.safetensors", osc.refine(q, **options)
    after, times = 1, 0
    while True:
        try:
            with stopping(monkeypatch, after):
                again = osc.refine(q, checkpoint=path, every=1, **options)
            break
        except Stops:
            assert path.exists()
            after, times = 3, times + 1
            assert times < 60
    assert times
    assert_same(again, whole)
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_a_refinement_is_refused_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "refine.safetensors"
    q = osc.laplace(network(), LIKELIHOOD, BATCHES, prior=1.0, refine=False)
    with pytest.raises(Stops), stopping(monkeypatch, 2):
        osc.refine(q, checkpoint=path, every=1)
    other = [(x + 1e-6, y) for x, y in BATCHES]
    with pytest.raises(ValueError, match=says("refinement", "other data", "42 data", "remove the file")):
        osc.refine(q, other, checkpoint=path)
    with pytest.raises(ValueError, match=says("trust=0.25", "0.5", "remove the file")):
        osc.refine(q, trust=0.5, checkpoint=path)
    with pytest.raises(ValueError, match=says("prior=", "2.0", "remove the file")):
        osc.refine(q.replace(prior=osc.priors.Isotropic(2.0)), checkpoint=path)
    with pytest.raises(ValueError, match=says("weights=", "remove the file")):
        osc.refine(osc.laplace(network(1), LIKELIHOOD, BATCHES, prior=1.0, refine=False), checkpoint=path)
    with pytest.raises(ValueError, match=says("dual", "without checkpoint")):
        osc.refine(osc.laplace(network(), LIKELIHOOD, BATCHES, structure="dual", refine=False), checkpoint=path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match=says("truncated")):
        osc.refine(q, checkpoint=path)


@pytest.mark.parametrize("after", [4, 8, 10])
def test_one_checkpoint_covers_fit_and_refinement(after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit has seven batches, and the refinement of joined ones a few more pieces."""
    path, whole = tmp_path / "fit.ckpt", osc.laplace(network(), LIKELIHOOD, BATCHES)
    with pytest.raises(Stops), stopping(monkeypatch, after):
        osc.laplace(network(), LIKELIHOOD, BATCHES, checkpoint=path, every=1)
    assert_same(osc.laplace(network(), LIKELIHOOD, BATCHES, checkpoint=path, every=1), whole)
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_the_fingerprint_of_a_list_of_batches_tells_their_number_shapes_values_and_order() -> None:
    batches = [(torch.full((4, 2), float(number)), torch.arange(4)) for number in range(3)]
    whole = fingerprint(batches)
    assert whole["shape"] == "3 batches: (4, 2) float32, (4,) int64"
    assert fingerprint([(x.clone(), y.clone()) for x, y in batches]) == whole
    changed = [(x.clone(), y) for x, y in batches]
    changed[1][0][0, 1] += 1
    others = [
        changed,
        batches[:2],
        batches[::-1],
        [(x, y.int()) for x, y in batches],
        [(x[:3], y[:3]) for x, y in batches],
    ]
    found = [tuple(fingerprint(other).items()) for other in others]
    assert len({*found, tuple(whole.items())}) == 6
    assert fingerprint(iter(batches)) == {}
