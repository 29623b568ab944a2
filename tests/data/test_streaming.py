"""Streams: the same batches from any files, the same posterior as from tensors, and refusals."""

import pickle
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import osculate as osc
from osculate.batches import as_batches, fingerprint, number_of_batches
from osculate.data import stream
from osculate.memory import DEFAULT_BUDGET

N, CLASSES = 103, 3
#: Ends of shards, one of which is empty.
SHARDS = (slice(0, 40), slice(40, 41), slice(41, 41), slice(41, N))


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(N, 4)), random.integers(CLASSES, size=N)


def as_pair(folder: Path, x: np.ndarray, y: np.ndarray) -> tuple[Path, Path]:
    np.save(folder / "a.npy", x)
    np.save(folder / "b.npy", y)
    return folder / "a.npy", folder / "b.npy"


def as_arrays(folder: Path, x: np.ndarray, y: np.ndarray) -> Path:
    for n, rows in enumerate(SHARDS):
        np.save(folder / f"inputs-{n}.npy", x[rows])
        np.save(folder / f"targets-{n}.npy", y[rows])
    return folder


def as_archives(folder: Path, x: np.ndarray, y: np.ndarray) -> str:
    for n, rows in enumerate(SHARDS):
        (np.savez if n % 2 else np.savez_compressed)(folder / f"part-{n}.npz", X=x[rows], y=y[rows])
    return str(folder / "part-*.npz")


def in_fortran_order(folder: Path, x: np.ndarray, y: np.ndarray) -> list[Path]:
    np.savez_compressed(folder / "part.npz", X=np.asfortranarray(x), y=y)
    return [folder / "part.npz"]


def as_table(folder: Path, x: np.ndarray, y: np.ndarray) -> Path:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {f"x{n}": x[:, n] for n in range(x.shape[1])}
    parquet.write_table(pyarrow.table({"label": y, **columns}), folder / "t.parquet", row_group_size=30)
    return folder / "t.parquet"


WRITERS = [as_pair, as_arrays, as_archives, in_fortran_order, as_table]


@pytest.mark.parametrize("write", WRITERS)
def test_batches_are_those_of_the_arrays_whatever_the_files(
    write: Callable, tmp_path: Path, arrays: tuple[np.ndarray, np.ndarray]
) -> None:
    x, y = (torch.from_numpy(each) for each in arrays)
    data = stream(write(tmp_path, *arrays), "label" if write is as_table else None, batch_size=10)
    assert (len(data), data.num_rows, number_of_batches(data)) == (11, N, 11)
    for each in (data, data, pickle.loads(pickle.dumps(data))):
        found = list(each)
        assert [len(each) for each, _ in found] == [10] * 10 + [3]
        torch.testing.assert_close(torch.cat([each for each, _ in found]), x.float(), rtol=0, atol=0)
        torch.testing.assert_close(torch.cat([each for _, each in found]), y, rtol=0, atol=0)
    assert fingerprint(data) == fingerprint(stream(as_pair(tmp_path, *arrays), batch_size=7))
    changed = arrays[0].copy()
    changed[-1] += 1
    assert fingerprint(data) != fingerprint(stream(as_pair(tmp_path, changed, arrays[1])))


@pytest.mark.parametrize("size", [1, 2, 7, 200])
def test_shares_are_all_rows_once(size: int, tmp_path: Path, arrays: tuple[np.ndarray, np.ndarray]) -> None:
    data = stream(as_archives(tmp_path, *arrays), batch_size=8, dtype=torch.float64)
    shares = [data.share(rank, size) for rank in range(size)]
    rows = [x for share in shares for x, _ in share]
    assert max(share.num_rows for share in shares) - min(share.num_rows for share in shares) <= 1
    assert [len(share) for share in shares] == [sum(1 for _ in share) for share in shares]
    torch.testing.assert_close(torch.cat(rows), torch.from_numpy(arrays[0]), rtol=0, atol=0)
    inner = shares[-1].share(0, 2)
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(inner, shares[-1], strict=False) if len(a) == len(b))
    with pytest.raises(ValueError, match="rank must be smaller than size"):
        data.share(size, size)


def test_types_of_targets(tmp_path: Path) -> None:
    x = np.arange(6, dtype=">i2").reshape(3, 2)  # bytes in the other order
    for y, shape, dtype in ((np.ones(3), (3, 1), torch.float32), (np.ones((3, 2), "i1"), (3, 2), torch.long)):
        ((inputs, targets),) = stream(as_pair(tmp_path, x, y))
        assert inputs.dtype == torch.float32
        assert inputs.tolist() == x.tolist()
        assert (targets.shape, targets.dtype) == (shape, dtype)


def test_a_posterior_is_that_of_the_tensors(tmp_path: Path, arrays: tuple[np.ndarray, np.ndarray]) -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, CLASSES)).double()
    x, y = (torch.from_numpy(each) for each in arrays)
    data = stream(as_archives(tmp_path, *arrays), batch_size=10, dtype=torch.float64)
    mapped = tuple(np.load(path, mmap_mode="r") for path in as_pair(tmp_path, *arrays))
    like = osc.likelihoods.Categorical()
    expected = osc.laplace(model, like, (x, y))  # refined, by several passes
    for each in (data, mapped):
        found = osc.laplace(model, like, each, checkpoint=tmp_path / "fit.ckpt")
        assert found.num_data == N
        torch.testing.assert_close(found.mean, expected.mean)
        torch.testing.assert_close(found.variance(), expected.variance())
    low = osc.laplace(model, like, data, structure="low_rank", prior=1.0, refine=False)  # two passes
    other = osc.laplace(model, like, (x, y), structure="low_rank", prior=1.0, refine=False)
    torch.testing.assert_close(low.variance(), other.variance())


def test_a_tuned_posterior_is_that_of_the_tensors(tmp_path: Path, arrays: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = (torch.from_numpy(each) for each in arrays)
    like, model = osc.likelihoods.Categorical(), nn.Linear(4, CLASSES).double()
    q = osc.laplace(model, like, (x, y), structure="diag", prior=1.0, refine=False)
    expected = osc.tune(q, (x, y))
    found = osc.tune(q, stream(as_arrays(tmp_path, *arrays), batch_size=10, dtype=torch.float64))
    torch.testing.assert_close(found.variance(), expected.variance())
    torch.testing.assert_close(found.temperature, expected.temperature)


def test_a_fit_goes_on_with_the_same_stream_alone(
    tmp_path: Path, arrays: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, like = nn.Linear(4, CLASSES), osc.likelihoods.Categorical()
    data = stream(as_archives(tmp_path, *arrays), batch_size=10)
    expected = osc.laplace(model, like, data, prior=1.0, refine=False)
    file = tmp_path / "fit.ckpt"

    def interrupted() -> Iterator[tuple[Tensor, Tensor]]:
        for number, batch in enumerate(batches(data)):
            if number == 5:
                raise KeyboardInterrupt
            yield batch

    batches = type(data).__iter__
    monkeypatch.setattr(type(data), "__iter__", lambda self: interrupted())
    with pytest.raises(KeyboardInterrupt):
        osc.laplace(model, like, data, prior=1.0, refine=False, checkpoint=file, every=1)
    monkeypatch.setattr(type(data), "__iter__", batches)
    other = stream(as_pair(tmp_path, arrays[0] + 1, arrays[1]), batch_size=10)
    with pytest.raises(ValueError, match="begun with other data"):
        osc.laplace(model, like, other, prior=1.0, refine=False, checkpoint=file, every=1)
    found = osc.laplace(model, like, data, prior=1.0, refine=False, checkpoint=file, every=1)
    assert torch.equal(found.variance(), expected.variance())


@pytest.mark.slow
def test_a_training_reads_a_stream(tmp_path: Path, arrays: tuple[np.ndarray, np.ndarray]) -> None:
    pytest.importorskip("lightning")
    data = stream(as_arrays(tmp_path, *arrays), batch_size=50)
    method = osc.methods.MAP(nn.Linear(4, CLASSES), osc.likelihoods.Categorical())
    done = osc.train(method, data, epochs=2, validation=data, progress=False)
    assert len(done.history) == 2


def test_a_large_stream_is_not_held_for_the_refinement(
    tmp_path: Path, arrays: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, like = stream(as_archives(tmp_path, *arrays), batch_size=10), osc.likelihoods.Categorical()
    model, passes, read = nn.Linear(4, CLASSES), [], type(data).__iter__
    monkeypatch.setattr(type(data), "__iter__", lambda self: passes.append(0) or read(self))
    laplace = import_module("osculate.methods.laplace")
    monkeypatch.setattr(laplace, "DEFAULT_BUDGET", 1000)
    with pytest.warns(UserWarning, match=r"not refined: .* read from files. Pass refine=True"):
        q = osc.laplace(model, like, data)
    assert len(passes) == 1
    assert q.refinement is None
    assert osc.laplace(model, like, data, refine=True).refinement is not None
    monkeypatch.setattr(laplace, "DEFAULT_BUDGET", DEFAULT_BUDGET)
    assert osc.laplace(model, like, data).refinement is not None
    monkeypatch.setattr("osculate.evidence.variational.free", lambda device: 1000)
    with pytest.warns(UserWarning, match=r"not refined: .* half of the free memory"):
        q = osc.laplace(model, like, data)
    monkeypatch.setattr("osculate.memory.free", lambda device: 0)
    monkeypatch.setattr("osculate.memory.NEGLIGIBLE", 0)
    with pytest.raises(ValueError, match="rows of a stream, which the linear model holds, take 2.5 KB, and 0 B are"):
        osc.maximise_evidence(q, mode="linear")


class TestRefusals:
    def test_no_file(self, tmp_path: Path) -> None:
        for paths, words in (
            (tmp_path / "a.npz", "there is no file at"),
            (tmp_path, "no file in the folder .* with one of the endings"),
            (str(tmp_path / "*.npz"), "with a name like"),
            ([], "list of paths is empty"),
        ):
            with pytest.raises(FileNotFoundError, match=words):
                stream(paths)

    def test_shards_that_differ(self, tmp_path: Path) -> None:
        for n, x in enumerate((np.zeros((2, 3)), np.zeros((2, 4)), np.zeros((2, 3), "f4"))):
            np.savez(tmp_path / f"{n}.npz", X=x, y=np.zeros(2))
        for other in (1, 2):
            with pytest.raises(ValueError, match=f"{other}.npz has rows of shape .* give all files one shape and type"):
                stream([tmp_path / "0.npz", tmp_path / f"{other}.npz"])

    def test_lengths_and_kinds(self, tmp_path: Path) -> None:
        for x, y, words in (
            (np.zeros((3, 2)), np.zeros(4), r"has 3 rows and .* has 4: give each input one target"),
            (np.zeros((3, 2)), np.array(["a", "b", "c"]), "has the type <U1: write real numbers"),
            (np.zeros((3, 2)), np.zeros(3, complex), "has the type complex128"),
            (np.zeros(()), np.zeros(3), "is a single number"),
            (np.zeros((0, 2)), np.zeros(0), "there are no rows"),
            (np.zeros((3, 2)), np.array([1, None, {}]), r"b.npy cannot be read \(it holds Python objects\)"),
        ):
            with pytest.raises(ValueError, match=words):
                stream(as_pair(tmp_path, x, y))

    @pytest.mark.parametrize("keep", [3, 100, 1000])
    @pytest.mark.parametrize("write", [as_pair, in_fortran_order, as_table])
    def test_a_file_that_is_cut_off(
        self, write: Callable, keep: int, tmp_path: Path, arrays: tuple[np.ndarray, np.ndarray]
    ) -> None:
        paths = write(tmp_path, *arrays)
        path = paths if isinstance(paths, Path) else paths[0]
        path.write_bytes(path.read_bytes()[:keep])
        with pytest.raises(ValueError, match=r"cannot be read \(.*\): write the file again"):
            stream(paths, "label" if write is as_table else None)

    def test_damage_within_an_archive(self, tmp_path: Path, arrays: tuple[np.ndarray, np.ndarray]) -> None:
        (path,) = in_fortran_order(tmp_path, np.asfortranarray(arrays[0]), arrays[1])
        np.savez(path, X=arrays[0], y=arrays[1])
        data, content = stream(path), bytearray(path.read_bytes())
        content[500] ^= 255
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"part.npz cannot be read \(Bad CRC"):
            list(data)

    def test_a_file_that_has_changed(self, tmp_path: Path, arrays: tuple[np.ndarray, np.ndarray]) -> None:
        paths = as_pair(tmp_path, *arrays)
        data = stream(paths)
        np.save(paths[1], arrays[1][:50])
        with pytest.raises(ValueError, match="have changed since they were opened"):
            list(data)

    def test_names(self, tmp_path: Path, arrays: tuple[np.ndarray, np.ndarray]) -> None:
        np.savez(tmp_path / "part.npz", data=arrays[0], more=arrays[0], label=arrays[1])
        with pytest.raises(ValueError, match="holds 'data', 'more', 'label', and not inputs 'X' with targets 'label'"):
            stream(tmp_path / "part.npz", target="label")
        paths = as_pair(tmp_path, *arrays)
        with pytest.raises(ValueError, match="it is not clear which inputs or targets belong to"):
            stream(paths[0])
        with pytest.raises(ValueError, match="target='y' names an array of an .npz archive"):
            stream(paths, target="y")
        (tmp_path / "notes.txt").write_text("x")
        with pytest.raises(ValueError, match="has none of the endings .npy, .npz, .parquet"):
            stream(tmp_path / "notes.txt")
        (as_arrays(tmp_path, *arrays) / "inputs-1.npy").unlink()
        with pytest.raises(ValueError, match="targets-1.npy: pass pairs"):
            stream(str(tmp_path / "*s-?.npy"))
        (tmp_path / "targets-2.npy").unlink()
        with pytest.raises(FileNotFoundError, match="targets-2.npy"):
            stream(str(tmp_path / "inputs*.npy"))

    def test_columns(self, tmp_path: Path, arrays: tuple[np.ndarray, np.ndarray]) -> None:
        path = as_table(tmp_path, *arrays)
        import pyarrow
        from pyarrow import parquet

        with pytest.raises(ValueError, match=r"target=None is none of the columns .*'label', 'x0'"):
            stream(path)
        parquet.write_table(pyarrow.table({"y": [1, 2], "x": ["a", "b"]}), path)
        with pytest.raises(ValueError, match="column 'x' .* has the type string: convert it to numbers"):
            stream(path, "y")
        parquet.write_table(pyarrow.table({"y": [1, 2], "x": [0.5, None]}), path)
        with pytest.raises(ValueError, match="column 'x' has 1 empty entries"):
            list(stream(path, "y"))

    def test_memory_mapped_arrays(self, tmp_path: Path, arrays: tuple[np.ndarray, np.ndarray]) -> None:
        x, y = (np.load(path, mmap_mode="r") for path in as_pair(tmp_path, *arrays))
        with pytest.raises(ValueError, match="X has 103 rows and Y has 102"):
            list(as_batches((x, y[1:])))
        with pytest.raises(TypeError, match="Y beside a memory-mapped array is a list"):
            list(as_batches((x, y.tolist())))
        assert sum(len(each) for _, each in as_batches((x, torch.from_numpy(arrays[1])), 50)) == N


class Rows(IterableDataset):
    """Rows that each worker yields, all of them or its share."""

    def __init__(self, shared: bool) -> None:
        self.shared = shared

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        info = get_worker_info()
        start, step = (info.id, info.num_workers) if self.shared and info is not None else (0, 1)
        return ((torch.full((2,), float(n)), torch.tensor(n % 2)) for n in range(start, 12, step))


def test_workers_that_repeat_rows_are_refused() -> None:
    for shared, workers in ((True, 2), (False, 1), (False, 0)):
        batches = list(as_batches(DataLoader(Rows(shared), batch_size=3, num_workers=workers)))
        assert sorted(torch.cat([x[:, 0] for x, _ in batches]).tolist()) == list(range(12))
    with pytest.raises(ValueError, match=r"all 2 workers .* each row would count 2 times: .*get_worker_info"):
        list(as_batches(DataLoader(Rows(False), batch_size=3, num_workers=2)))
