"""The user's own arrays: understood, or refused with the reason."""

from pathlib import Path

import numpy as np
import pytest
import torch

from osculate.data import from_arrays, read_arrays
from tests.data.test_loading import check, rows
from tests.errors import says

X = np.random.default_rng(0).normal(size=(50, 3)) * [1, 100, 1] + [0, 5, 1e4]
LABELS = np.arange(50) % 4
NUMBERS = X @ [1.0, -2.0, 0.5]


def save(folder: Path, **arrays: np.ndarray) -> Path:
    path = folder / "mine.npz"
    np.savez(path, **arrays)
    return path


def with_nan(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array[7, 1] = np.nan
    return array


def test_whole_numbers_are_classes(tmp_path: Path) -> None:
    data = from_arrays(save(tmp_path, X=X, y=LABELS))
    check(data)
    assert data.name == "mine"
    assert data.classes == ("0", "1", "2", "3")
    assert [len(part[0]) for part in (data.train, data.validation, data.test)] == [36, 4, 10]
    everything = rows(data.train) | rows(data.validation) | rows(data.test)
    assert everything == {x.tobytes() for x in X.astype(np.float32)}


@pytest.mark.parametrize("shape", [(50,), (50, 1), (25, 2)])
def test_real_numbers_are_regression(tmp_path: Path, shape: tuple[int, ...]) -> None:
    data = from_arrays(save(tmp_path, X=X[: shape[0]], y=NUMBERS.reshape(shape)))
    check(data)
    assert data.classes is None
    assert data.outputs == (shape[1] if len(shape) == 2 else 1)
    undone = data.target_scale * data.test[1] + data.target_mean
    assert np.isin(undone.numpy().round(1), NUMBERS.round(1).astype(np.float32)).mean() > 0.5


def test_a_test_part_in_the_file_is_used(tmp_path: Path) -> None:
    data = from_arrays(save(tmp_path, X=X, y=LABELS, X_test=X[:5] + 1, y_test=LABELS[:5] + 2), validation_size=0)
    assert len(data.train[0]) == 50
    assert len(data.test[0]) == 5
    assert len(data.classes) == 6, "classes that only the test part has count"


def test_byte_images_are_scaled_and_other_inputs_are_not(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 1, 4, 4)).astype(np.uint8)
    images[:, 0, 0, 0] = 255
    assert float(from_arrays(save(tmp_path, X=images, y=LABELS[:20])).train[0].max()) == 1
    x, _ = read_arrays(save(tmp_path, X=images, y=LABELS[:20]))
    assert float(x.max()) == 1
    x, y = read_arrays(save(tmp_path, X=X, y=NUMBERS))
    assert torch.equal(x, torch.from_numpy(X).float())
    assert y.shape == (50, 1)


def test_targets_may_be_missing_where_they_are_not_needed(tmp_path: Path) -> None:
    path = save(tmp_path, X=X)
    assert read_arrays(path, targets=False)[1].shape == (50, 0)
    unused = save(tmp_path, X=X, y=np.array(["a"] * 50))
    assert read_arrays(unused, targets=False)[1].shape == (50, 0)
    path = save(tmp_path, X=X)
    with pytest.raises(ValueError, match=says("'y'", "'X'")):
        read_arrays(path)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": X, "y": LABELS}, ["'X'", "'x'", "'y'"]),
        ({"X": X, "Y": LABELS}, ["'Y'", "no 'y'"]),
        ({"X": X, "X_test": X, "y_test": LABELS}, ["'y_test'", "no 'y'"]),
        ({"X": X, "y": LABELS[:-1]}, ["50 rows", "49"]),
        ({"X": X[:0], "y": LABELS[:0]}, ["0 rows"]),
        ({"X": with_nan(X), "y": LABELS}, ["X", "nan", "(7, 1)"]),
        ({"X": X, "y": with_nan(X)}, ["y", "nan", "(7, 1)"]),
        ({"X": X + np.inf, "y": LABELS}, ["X", "inf", "(0, 0)"]),
        ({"X": X, "y": LABELS - 1}, ["-1", "from 0"]),
        ({"X": X, "y": LABELS * 10**7}, ["30,000,000", "without gaps", "numpy.unique"]),
        ({"X": X, "y": np.stack([LABELS, LABELS], 1)}, ["(50, 2)", "floating-point"]),
        ({"X": X, "y": X[:, :, None]}, ["(50, 3, 1)"]),
        ({"X": X[:, 0], "y": LABELS}, ["(50,)"]),
        ({"X": X, "y": np.array(["a"] * 50)}, ["y", "<U1"]),
        ({"X": X + 1j, "y": LABELS}, ["complex"]),
        ({"X": X, "y": LABELS, "X_test": X[:5]}, ["'y_test'"]),
        ({"X": X, "y": LABELS, "X_test": X[:5, :2], "y_test": LABELS[:5]}, ["(3,)", "(2,)"]),
        ({"X": X, "y": LABELS, "X_test": X[:5], "y_test": NUMBERS[:5]}, ["y_test", "int64", "float64"]),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], words: list[str]) -> None:
    with pytest.raises(ValueError, match=says("mine.npz", *words)):
        from_arrays(save(tmp_path, **arrays))


def test_inputs_alone_are_for_autoencoders(tmp_path: Path) -> None:
    data = from_arrays(save(tmp_path, X=X, X_test=X[:5]))
    assert not data.has_targets
    assert data.train[1].shape == (len(data.train[0]), 0)
    assert data.target_scaling is None
    own = data.reconstructing()
    assert own.has_targets
    assert torch.equal(own.test[0], own.test[1])
    assert not from_arrays(save(tmp_path, X=X.astype(np.uint8))).has_targets


def test_wrong_sizes_and_missing_files(tmp_path: Path) -> None:
    path = save(tmp_path, X=X, y=LABELS)
    with pytest.raises(ValueError, match="test_fraction must be between 0 and 1, got 1"):
        from_arrays(path, test_fraction=1.0)
    with pytest.raises(ValueError, match=says("got 41", "from 1 to 40")):
        from_arrays(path, train_size=41)
    with pytest.raises(FileNotFoundError, match=r"none\.npz"):
        from_arrays(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="1 rows"):
        from_arrays(save(tmp_path, X=X[:2], y=LABELS[:2]))
