"""Processes that share the data have the posterior of all data, or end with an error that says why."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import osculate as osc
from osculate.batches import as_batches
from osculate.distributed import Group
from osculate.linalg import eigh
from osculate.posteriors.resumable import among, hashed_rows, opened
from tests.laws import assert_close
from tests.posteriors.test_resumable import Breaks
from tests.processes import TIMEOUT, Processes, kill_after, processes

#: The ends of the shares of 37 data, by number of processes: uneven ones, and an empty one.
CUTS = {1: (0, 37), 2: (0, 23, 37), 4: (0, 11, 11, 30, 37)}
QUICK = ("kron", "dual")
RELEASE = pytest.mark.release
OTHERS = [name for name in osc.structures.REGISTRY if name not in (*QUICK, "mixed_diag", "matrix_free")]


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.release)])
def group(request: pytest.FixtureRequest) -> Iterator[Processes]:
    with processes(request.param) as found:
        yield found


def problem(likelihood: str, dtype: torch.dtype) -> tuple[nn.Module, Any, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(37, 4, generator=generator, dtype=torch.double)
    classes, values = torch.randint(3, (37,), generator=generator), x[:, :2].sin()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3 if likelihood == "categorical" else 2)).to(dtype)
    if likelihood == "categorical":
        return model, osc.likelihoods.Categorical(), x.to(dtype), classes
    return model, osc.likelihoods.Gaussian(0.5), x.to(dtype), values.to(dtype)


def share(rank: int, size: int, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Batches of this process."""
    own = [tensor[CUTS[size][rank] : CUTS[size][rank + 1]] for tensor in tensors]
    return list(zip(*(tensor.split(8) for tensor in own), strict=True)) if len(own[0]) else []


def answers(rank: int, size: int, structure: str, likelihood: str, dtype: torch.dtype) -> dict[str, Tensor]:
    model, p, x, y = problem(likelihood, dtype)
    options = {"tolerance": 1e-12} if structure == "matrix_free" and dtype == torch.double else {}
    chosen = osc.structures.REGISTRY[structure](**options)
    data = share(rank, size, x, y)
    q = osc.laplace(model, p, data, structure=chosen, prior=1.0, refine=False)
    refined, new = osc.refine(q), x[:5]
    return {
        "N": torch.tensor(q.num_data),
        "curvature": q.structure.dense(),
        "evidence": osc.log_evidence(q),
        "evidence of the linear model": osc.log_evidence(q, mode="linear"),
        "tuned": osc.log_evidence(osc.maximise_evidence(q)),
        "variances": osc.functional_variance(q, new),
        "refined mean": refined.mean,
        "refined variances": osc.functional_variance(refined, new),
        "bound": osc.evidence.linear_elbo(refined),
        "predictive": osc.predict(refined, new).mean
        if likelihood != "categorical"
        else osc.predict(refined, new).probs,
    }


def compared(group: Processes, structure: str, likelihood: str, dtype: torch.dtype) -> None:
    expected = answers(0, 1, structure, likelihood, dtype)
    exact = dtype == torch.double
    for found in group.run(answers, structure, likelihood, dtype).values():
        assert isinstance(found, dict), found
        for name, value in expected.items():
            solved = structure in ("low_rank", "matrix_free") or name == "tuned"
            assert_close(found[name], value, 1e-9 if exact else 1e-4 if solved else 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("structure", QUICK)
def test_answers_are_those_of_one_process(group: Processes, structure: str) -> None:
    compared(group, structure, "categorical", torch.double)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.double, pytest.param(torch.float, marks=pytest.mark.release)])
@pytest.mark.parametrize("likelihood", ["categorical", pytest.param("gaussian", marks=RELEASE)])
@pytest.mark.parametrize("structure", [*QUICK, *OTHERS, pytest.param("matrix_free", marks=RELEASE)])
def test_every_structure_is_that_of_one_process(
    group: Processes, structure: str, likelihood: str, dtype: torch.dtype
) -> None:
    compared(group, structure, likelihood, dtype)


def fitted(rank: int, size: int, spoiled: str) -> float:
    model, p, x, y = problem("categorical", torch.double)
    data: Any = share(rank, size, x, y)
    options: dict[str, Any] = {"prior": 1.0, "refine": False}
    if spoiled == "same data":
        data = [(x, y)]
    elif spoiled == "no data":
        data = []
    elif spoiled == "nan" and rank == size - 1:
        data = [(torch.full_like(x, float("nan")), y)]
    elif spoiled == "weights" and rank == size - 1:
        model[0].weight.data.add_(1e-3)
    elif spoiled == "structure" and rank == size - 1:
        options["structure"] = "diag"
    elif spoiled == "subnetwork":
        options |= {"subset": osc.Subnetwork(0.5), "structure": "full"}
    elif spoiled == "points":
        options["structure"] = osc.structures.Dual(points=3)
    elif spoiled == "sharded":
        fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    elif spoiled == "wrapped":
        model = nn.parallel.DistributedDataParallel(model)
    return osc.laplace(model, p, data, **options).num_data


SPOILED = {
    "same data": "all processes have the same 37 data",
    "no data": "hold no batch in any process",
    "nan": "holds nan",
    "weights": "do not fit the same thing: weights=",
    "structure": "do not fit the same thing: structure=",
    "subnetwork": "a Subnetwork is chosen by the data of one process",
    "points": "draws its points",
    "sharded": "is sharded over processes",
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_what_would_be_wrong_is_refused_by_all(group: Processes, spoiled: str) -> None:
    for words in group.run(fitted, spoiled).values():
        assert isinstance(words, str), words
        assert SPOILED[spoiled] in words, words
    assert set(group.run(fitted, "").values()) == {37}  # and the group goes on


def test_wrapped_networks_are_fitted_by_all(group: Processes) -> None:
    assert set(group.run(fitted, "wrapped").values()) == {37}


def labelled(rank: int, size: int, way: str, structure: str = "kron", step: int = 8) -> dict[str, Tensor]:
    """A Fisher with sampled labels, of data that are dealt out in some way."""
    model, p, x, y = problem("gaussian" if structure == "diag" else "categorical", torch.double)
    dataset = TensorDataset(x, y)
    data: Any = share(rank, size, x, y)
    if way == "sampler":
        data = DataLoader(dataset, step, sampler=DistributedSampler(dataset, size, rank, shuffle=False))
    elif way == "batches":
        data = [(a[i : i + step], b[i : i + step]) for a, b in data for i in range(0, len(b), step)]
    elif way == "hashed":  # of no number that is known before the pass
        data = (
            each for each in [(a[rows], b[rows]) for a, b in data for rows in torch.arange(len(b)).flip(0).split(3)]
        )
    kind = osc.curvature.Fisher(2, torch.Generator().manual_seed(5 + rank))
    options = {"memory": 4_000} if way == "memory" else {}
    q = osc.laplace(model, p, data, structure=structure, curvature=kind, prior=1.0, refine=False, **options)
    return {"curvature": q.structure.dense(), "evidence": osc.log_evidence(q)}


@pytest.mark.parametrize("structure", ["kron", "diag", "dual", "ekfac", "matrix_free"])
def test_sampled_labels_do_not_depend_on_processes_and_batches(group: Processes, structure: str) -> None:
    expected = labelled(0, 1, "", structure)
    ways = ("", "sampler", "batches", "memory") if structure == "kron" else ("sampler",)
    for way in ways:
        for each in group.run(labelled, way, structure, 3).values():
            assert isinstance(each, dict), each
            for name, value in expected.items():
                assert_close(each[name], value, 1e-5 if structure == "matrix_free" else 1e-9)


def test_labels_of_data_of_unknown_number_follow_from_their_rows(group: Processes) -> None:
    expected = labelled(0, 1, "hashed", "kron")
    for found in group.run(labelled, "hashed", "kron").values():
        assert isinstance(found, dict), found
        assert_close(found["curvature"], expected["curvature"], 1e-9)


def decomposing(rank: int, size: int, structure: str, options: dict[str, Any]) -> tuple[int, dict[str, Tensor]]:
    """The number of eigendecompositions that this process makes for a fit and a prediction, and the answers."""
    made: list[int] = []

    def counted(matrix: Tensor) -> tuple[Tensor, Tensor]:
        made.append(len(matrix))
        return eigh(matrix)

    model, p, x, y = problem("categorical", torch.double)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("osculate.structures.blocks.kronecker.eigh", counted)
        patch.setattr("osculate.structures._base.WORTH_SHARING", 0)
        q = osc.laplace(model, p, share(rank, size, x, y), structure=structure, **options)
        if rank == size - 1:  # alone
            osc.predict(q, x[:3])
    bases = {str(n): vars(block)["_input_basis"][1].clone() for n, block in enumerate(q.structure.blocks)}
    return len(made), bases | {"dense": q.structure.dense()}


@pytest.mark.parametrize("structure", ["kron", "ekfac"])
def test_eigendecompositions_are_made_once_and_have_the_same_bits(group: Processes, structure: str) -> None:
    for options in ({"refine": False}, {"prior": 1.0}) if structure == "kron" else ({"refine": False},):
        (alone, expected), found = decomposing(0, 1, structure, options), group.run(decomposing, structure, options)
        assert not [each for each in found.values() if isinstance(each, str)], found
        assert sum(made for made, _ in found.values()) == alone
        assert max(made for made, _ in found.values()) < alone
        for _, answers in found.values():
            assert all(torch.equal(answers[name], each) for name, each in found[0][1].items())
            assert_close(answers["dense"], expected["dense"], 1e-9)


def padded(rank: int, size: int, drop_last: bool) -> int:
    model, p, x, y = problem("categorical", torch.double)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, size, rank, shuffle=True, drop_last=drop_last)
    q = osc.laplace(model, p, DataLoader(data, 4, sampler=sampler), prior=1.0, refine=False)
    return q.num_data


def test_rows_that_a_sampler_repeats_are_left_out(group: Processes) -> None:
    assert set(group.run(padded, False).values()) == {37}
    assert set(group.run(padded, True).values()) == {37 // group.size * group.size}


def test_a_loader_of_accelerate_that_repeats_rows_is_refused() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(5, 2), torch.zeros(5)), 2)
    loader.batch_sampler.even_batches, loader.batch_sampler.num_processes = True, 2  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="even_batches=False"):
        next(as_batches(loader))


@pytest.mark.release
def test_a_call_in_one_process_alone_ends_within_the_time_out() -> None:
    with processes(2) as group:
        start = time.monotonic()
        (words,) = group.run(fitted, "", among=[0]).values()
        assert "process 1 of 2 did not take part" in words
        assert time.monotonic() - start < 3 * TIMEOUT


class Slow(list):
    """Batches that take their time."""

    def __iter__(self) -> Iterator[Any]:
        for batch in list.__iter__(self):
            time.sleep(0.3)
            yield batch


def slow(rank: int, size: int, path: str) -> dict[str, Tensor]:
    model, p, x, y = problem("categorical", torch.double)
    data = [batch for each in share(rank, size, x, y) for batch in zip(*(t.split(2) for t in each), strict=True)]
    q = osc.laplace(model, p, Slow(data), prior=1.0, refine=False, checkpoint=path, every=1)
    return q.structure.tensors() | {"evidence": osc.log_evidence(q), "N": torch.tensor(q.num_data)}


@pytest.mark.release
def test_a_process_that_dies_is_named_by_the_others_and_the_job_goes_on(tmp_path: Path) -> None:
    whole, paths = slow(0, 1, str(tmp_path / "none")), [str(tmp_path / name) for name in ("one", "two")]
    for path in paths:
        with processes(2) as group:
            victim, file = group.each[1].pid, Path(f"{path}.1-of-2")
            assert victim is not None
            kill_after(victim, file)
            found = group.run(slow, path, answers=1)
            assert "process 1 of 2 did not take part" in found[0]
            assert "Start the job again" in found[0]
            assert file.exists()
    with processes(2) as group:
        states = group.run(slow, paths[1])
    states[-1] = slow(0, 1, paths[0])
    for state in states.values():
        assert isinstance(state, dict), state
        for name, value in whole.items():
            assert_close(state[name], value, 1e-9)
    assert all(path.suffix == ".lock" for path in tmp_path.iterdir())  # of the killed process


def interrupted(
    rank: int, size: int, path: str, structure: str, after: int | None, seldom: int = 1, curvature: str = "ggn"
) -> dict[str, Tensor] | None:
    """The state of a fit with a checkpoint, or None after it was interrupted in the second half of its passes."""
    model, p, x, y = problem("categorical", torch.double)
    data: Any = [batch for group in share(rank, size, x, y) for batch in zip(*(t.split(2) for t in group), strict=True)]
    data = data if after is None else Breaks(data, after, osc.structures.REGISTRY[structure]().passes - 1)
    seed = 7 if after is not None or path.endswith(("none", "exact")) else 8  # the seed of the file counts
    kind: Any = osc.curvature.Fisher(generator=torch.Generator().manual_seed(seed))
    options: dict[str, Any] = {"structure": structure, "curvature": kind if curvature == "fisher" else curvature}
    options |= {"checkpoint": path, "every": seldom if rank else 1}
    try:
        q = osc.laplace(model, p, data, prior=1.0, refine=False, **options)
    except KeyboardInterrupt:
        return None
    return q.structure.tensors() | {"evidence": osc.log_evidence(q), "N": torch.tensor(q.num_data)}


@pytest.mark.release
@pytest.mark.parametrize(("structure", "kind"), [("kron", "ggn"), ("kron", "fisher"), ("ekfac", "fisher")])
def test_a_fit_goes_on_with_the_same_or_another_number_of_processes(structure: str, kind: str, tmp_path: Path) -> None:
    def paths(name: str, after: int | None) -> tuple[Any, ...]:
        return str(tmp_path / name), structure, after, 1, kind

    whole = interrupted(0, 1, *paths("none", None))
    assert whole is not None
    states: dict[int, Any] = {}
    with processes(2) as two:
        exact = two.run(interrupted, *paths("exact", None))[0]
        for name in ("two", "three", "one"):
            assert set(two.run(interrupted, *paths(name, 3)).values()) == {None}
            assert {path.name for path in tmp_path.iterdir()} >= {f"{name}.0-of-2", f"{name}.1-of-2"}
        states[2] = two.run(interrupted, *paths("two", None))[0]
    states[1] = interrupted(0, 1, *paths("one", None))
    with processes(4) as four:
        states[4] = four.run(interrupted, *paths("three", None))[0]
    for size, state in states.items():
        assert isinstance(state, dict), state
        for name, value in whole.items():
            assert_close(state[name], value, 1e-9)
            assert size != 2 or torch.equal(state[name], exact[name])
    assert not list(tmp_path.iterdir())


@pytest.mark.release
def test_torchrun_shares_the_digits(tmp_path: Path) -> None:
    """The commands of README, with one epoch."""
    folders = [tmp_path / "one", tmp_path / "two"]
    train = [sys.executable, "-m", "osculate", "train", "--data", "digits", "--epochs", "1", "--progress", "false"]
    subprocess.run([*train, "--output", str(folders[0])], check=True, capture_output=True)
    shutil.copytree(*folders)
    found = []
    for start, folder in zip(([], ["torch.distributed.run", "--nproc-per-node", "2", "-m"]), folders, strict=True):
        quiet = ["--progress", "false", "--tune", "false"]  # a flat loss would be tuned to another place
        command = [sys.executable, "-m", *start, "osculate", "fit", "--checkpoint", str(folder), *quiet]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("Saved") == 1
        found.append(json.loads((folder / "metrics.json").read_text())["fit"])
    assert found[0]["data"] == found[1]["data"]
    assert found[1]["effective_parameters"] == pytest.approx(found[0]["effective_parameters"], rel=1e-3)
    assert not list(tmp_path.glob("*/*partial*"))


@pytest.mark.slow
def test_processes_whose_files_are_of_different_passes_go_on_together(group: Processes, tmp_path: Path) -> None:
    whole, path = interrupted(0, 1, str(tmp_path / "none"), "ekfac", None), str(tmp_path / "fit")
    assert whole is not None
    for name in ("fit", "one"):  # others than the first wrote in the first pass alone, and those without data never
        assert set(group.run(interrupted, str(tmp_path / name), "ekfac", 2, 6).values()) == {None}
    found = group.run(interrupted, path, "ekfac", None)
    found[-1] = interrupted(0, 1, str(tmp_path / "one"), "ekfac", None)
    for state in found.values():
        assert isinstance(state, dict), state
        for name, value in whole.items():
            assert_close(state[name], value, 1e-9)
    assert not list(tmp_path.iterdir())


def test_rows_are_told_apart_and_counted() -> None:
    x, y = torch.randn(6, 3), torch.arange(6)
    x[3], y[3] = x[0], y[0]
    rows = hashed_rows({"a": x, "b": (x > 0)}, y)
    assert len(rows.unique()) == 5
    assert among(rows, rows[[0, 5]]).tolist() == [True, False, False, False, False, True]
    assert among(rows, rows[[3, 0]]).tolist() == [True, False, False, True, False, False]


def test_a_fit_of_one_process_is_not_that_of_several(tmp_path: Path) -> None:
    (tmp_path / "fit").write_bytes(b"")
    with (
        pytest.raises(ValueError, match="begun in one process, and these are 2"),
        opened(tmp_path / "fit", 1, Group(0, 2)),
    ):
        pass


def test_the_choice_is_checked() -> None:
    model, p, x, y = problem("categorical", torch.double)
    with pytest.raises(ValueError, match='"auto" or False'):
        osc.laplace(model, p, (x, y), distributed="always")
