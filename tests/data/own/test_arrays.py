"""The user's own arrays: understood, or refused with the reason."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from osculate.data import Dataset, Schema, read
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
    data = read(save(tmp_path, X=X, y=LABELS))
    check(data)
    assert data.name == "mine"
    assert data.classes == ("0", "1", "2", "3")
    assert [len(part[0]) for part in (data.train, data.validation, data.test)] == [36, 4, 10]
    everything = rows(data.train) | rows(data.validation) | rows(data.test)
    assert everything == {x.tobytes() for x in X.astype(np.float32)}


@pytest.mark.parametrize("shape", [(50,), (50, 1), (25, 2)])
def test_real_numbers_are_regression(tmp_path: Path, shape: tuple[int, ...]) -> None:
    data = read(save(tmp_path, X=X[: shape[0]], y=NUMBERS.reshape(shape)))
    check(data)
    assert data.classes is None
    assert data.outputs == (shape[1] if len(shape) == 2 else 1)
    undone = data.target_scale * data.test[1] + data.target_mean
    assert np.isin(undone.numpy().round(1), NUMBERS.round(1).astype(np.float32)).mean() > 0.5


def test_a_test_part_in_the_file_is_used(tmp_path: Path) -> None:
    data = read(save(tmp_path, X=X, y=LABELS, X_test=X[:5] + 1, y_test=LABELS[:5] + 2), validation_size=0)
    assert len(data.train[0]) == 50
    assert len(data.test[0]) == 5
    assert len(data.classes) == 6, "classes that only the test part has count"


def test_byte_images_are_scaled_and_other_inputs_are_not(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 1, 4, 4)).astype(np.uint8)
    images[:, 0, 0, 0] = 255
    path = save(tmp_path, X=images, y=LABELS[:20])
    data = read(path)
    assert float(data.train[0].max()) == 1
    x, y = data.schema.read(path)
    assert float(x.max()) == 1
    assert y.tolist() == LABELS[:20].tolist()
    path = save(tmp_path, X=X, y=LABELS)
    assert torch.equal(read(path).schema.read(path)[0], torch.from_numpy(X).float())
    assert read(path).input_scaling is None
    assert read(path, standardise=True).train[0].mean(0).abs().max() < 1e-5


def test_new_data_need_no_targets(tmp_path: Path) -> None:
    schema = read(save(tmp_path, X=X, y=NUMBERS)).schema
    path = save(tmp_path, X=X)
    x, y = schema.read(path, targets=False)
    assert y.shape == (50, 0)
    assert torch.allclose(x * schema.inputs.scaling.scale + schema.inputs.scaling.mean, torch.tensor(X).float())
    with pytest.raises(ValueError, match=says("'y'", "'X'")):
        schema.read(path)


@pytest.mark.parametrize("shape", [(12, 8, 8, 1), (12, 8, 6, 3), (12, 4, 4, 1), (12, 9, 9, 2)])
def test_channels_on_the_last_axis_are_moved(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).random(shape)
    schema = read((x, LABELS[:12]), channel_axis=None).schema
    assert schema.inputs.channel_axis == "last"
    assert torch.equal(schema.read(x, targets=False)[0], torch.tensor(x).float().permute(0, 3, 1, 2))
    assert f"{shape[-1]} channel" in str(schema)


def test_channels_first_stay_and_grey_bytes_get_an_axis() -> None:
    x = np.random.default_rng(0).random((12, 3, 8, 6))
    assert read((x, LABELS[:12])).input_shape == (3, 8, 6)
    assert read(((255 * x[:, 0]).astype(np.uint8), LABELS[:12])).input_shape == (1, 8, 6)
    assert read((x[:, :, :3, :3], LABELS[:12]), channel_axis="last").input_shape == (3, 3, 3)


def test_words_are_classes_and_sparse_numbers_are_names(tmp_path: Path) -> None:
    path = save(tmp_path, X=X, y=np.array(["wet", "dry"] * 25))
    data = read(path)
    assert data.classes == ("dry", "wet")
    check(data)
    assert read(save(tmp_path, X=X, y=LABELS * 10**5)).classes == ("0", "100000", "200000", "300000")
    assert read(save(tmp_path, X=X, y=LABELS % 2 * 7)).classes == ("0", "7")
    assert read(save(tmp_path, X=X, y=LABELS[:, None] > 1)).classes == ("False", "True")


def test_single_files_of_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("inputs.npy", X)
    np.save("targets.npy", LABELS)
    np.save("other.npy", NUMBERS)
    assert read("inputs.npy").classes == ("0", "1", "2", "3")
    assert read("inputs.npy", target="other.npy").classes is None
    assert not read("inputs.npy", target="none").has_targets
    assert len(read("inputs.npy").schema.read("inputs.npy", targets=False)[0]) == 50


def test_arrays_tensors_and_loaders_in_memory() -> None:
    kinds = [
        (X, LABELS),
        (torch.from_numpy(X), torch.from_numpy(LABELS)),
        {"X": X, "y": LABELS},
        TensorDataset(torch.from_numpy(X), torch.from_numpy(LABELS)),
        (X.tolist(), np.array(LABELS)),
    ]
    first = read(kinds[0]).train
    for kind in kinds[1:]:
        assert all(torch.equal(a, b) for a, b in zip(read(kind).train, first, strict=True))
    assert not read(X).has_targets


def test_groups_and_parts_are_arrays_of_the_archive(tmp_path: Path) -> None:
    path = save(tmp_path, X=X, y=LABELS, patient=np.arange(50) // 5)
    data = read(path, groups="patient")
    found = [{int(np.abs(X - x).sum(1).argmin()) // 5 for x in part[0].numpy()} for part in parts(data)]
    assert not found[0] & found[1]
    assert not found[0] & found[2]
    assert not found[1] & found[2]
    assert set().union(*found) == set(range(10))
    part = np.array(["train"] * 30 + ["val"] * 5 + ["test"] * 15)
    data = read(save(tmp_path, X=X, y=LABELS, part=part), split_column="part")
    assert [len(each[0]) for each in parts(data)] == [30, 5, 15]
    assert rows(data.test) == {x.tobytes() for x in X[35:].astype(np.float32)}


def parts(data: Dataset) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [data.train, data.validation, data.test]


def test_the_schema_is_the_same_after_json(tmp_path: Path) -> None:
    path = save(tmp_path, X=X, y=NUMBERS)
    schema = read(path).schema
    again = Schema.from_content(json.loads(json.dumps(schema.content())))
    assert again == schema
    for a, b in zip(schema.read(path), again.read(path), strict=True):
        assert torch.equal(a, b)
    assert all(torch.equal(a, b) for a, b in zip(read(path, schema=again).test, read(path).test, strict=True))


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
        ({"X": X, "y": np.arange(50)}, ["50 different values", "task='regression'"]),
        ({"X": X, "y": LABELS % 2 / 1.0}, ["0.0 and 1.0", "task='classification'", "--target-task"]),
        ({"X": X, "y": LABELS * 0}, ["one value only", "'y'"]),
        ({"X": np.zeros((50, 16, 8, 8)), "y": LABELS}, ["(50, 16, 8, 8)", "channel_axis='first' or 'last'"]),
        ({"X": X, "y": np.stack([LABELS, LABELS], 1)}, ["(50, 2)", "floating-point"]),
        ({"X": X, "y": X[:, :, None]}, ["(50, 3, 1)"]),
        ({"X": X[:, 0], "y": LABELS}, ["(50,)"]),
        ({"X": X.astype(str), "y": LABELS}, ["X", "<U", "table"]),
        ({"X": X + 1j, "y": LABELS}, ["complex"]),
        ({"X": X, "y": LABELS, "X_test": X[:5]}, ["'y_test'"]),
        ({"X": X, "y": LABELS, "X_test": X[:5, :2], "y_test": LABELS[:5]}, ["(3,)", "(2,)"]),
        ({"X": X, "y": LABELS, "X_test": X[:5], "y_test": NUMBERS[:5]}, ["y_test", "int64", "float64"]),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], words: list[str]) -> None:
    with pytest.raises(ValueError, match=says("mine.npz", *words)):
        read(save(tmp_path, **arrays))


def test_inputs_alone_are_for_autoencoders(tmp_path: Path) -> None:
    data = read(save(tmp_path, X=X, X_test=X[:5]))
    assert not data.has_targets
    assert data.train[1].shape == (len(data.train[0]), 0)
    assert data.target_scaling is None
    own = data.reconstructing()
    assert own.has_targets
    assert torch.equal(own.test[0], own.test[1])
    assert not read(save(tmp_path, X=X.astype(np.uint8))).has_targets


def test_wrong_sizes_and_missing_files(tmp_path: Path) -> None:
    path = save(tmp_path, X=X, y=LABELS)
    with pytest.raises(ValueError, match="test_fraction must be between 0 and 1, got 1"):
        read(path, test_fraction=1.0)
    with pytest.raises(ValueError, match=says("got 41", "from 1 to 40")):
        read(path, train_size=41)
    with pytest.raises(FileNotFoundError, match=r"none\.npz"):
        read(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="1 rows"):
        read(save(tmp_path, X=X[:2], y=LABELS[:2]))


def test_bytes_for_a_network_of_standardised_numbers_are_standardised() -> None:
    x = np.random.default_rng(0).integers(0, 200, (50, 3))
    schema = read((x.astype(np.float64), NUMBERS)).schema
    assert schema is not None
    assert torch.equal(schema.read(x.astype(np.uint8), targets=False)[0], schema.read(x * 1.0, targets=False)[0])


def test_bytes_and_other_numbers_are_not_mixed_in_silence() -> None:
    x = np.random.default_rng(0).integers(0, 200, (50, 3)).astype(np.uint8)
    of_bytes, of_numbers = (read((each, LABELS)).schema for each in (x, X))
    assert of_bytes is not None
    assert of_numbers is not None
    of_bytes, of_numbers = (Schema.from_content(json.loads(json.dumps(s.content()))) for s in (of_bytes, of_numbers))
    assert torch.allclose(of_bytes.read(x / 255, targets=False)[0], of_bytes.read(x, targets=False)[0])
    with pytest.raises(ValueError, match=says("trained on bytes", "astype('uint8')")):
        of_bytes.read(x.astype(np.float32), targets=False)
    with pytest.raises(ValueError, match=says("holds bytes", "astype('float32')")):
        of_numbers.read(x, targets=False)


def test_whole_number_images_of_0_to_255_are_bytes() -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 1, 4, 4))
    wide, narrow = (read((images.astype(kind), LABELS[:20])) for kind in (np.int64, np.uint8))
    assert torch.equal(wide.train[0], narrow.train[0])
    assert float(wide.train[0].max()) <= 1


def test_the_named_channel_axis_counts_where_all_axes_are_equal() -> None:
    images = np.random.default_rng(0).normal(size=(20, 3, 3, 3)).astype(np.float32)
    first, last = (read((images, LABELS[:20]), channel_axis=axis) for axis in ("first", "last"))
    assert torch.equal(first.train[0].permute(0, 3, 1, 2), last.train[0])
    assert last.schema is not None
    assert torch.equal(last.schema.read(images, targets=False)[0], torch.from_numpy(images).permute(0, 3, 1, 2))
