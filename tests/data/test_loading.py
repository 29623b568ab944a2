"""Data sets by name: parts that do not overlap, scaling that can be undone, errors with a way out."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from osculate.data import REGISTRY, Dataset, load
from osculate.data.dataset import Scaling
from tests.data.test_files import write_idx
from tests.errors import says

#: Data sets without files: the functions of ``osculate/data/toys.py``.
EMBEDDED = [name for name, read in REGISTRY.items() if read.__module__ == "osculate.data.toys"]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test downloads anything."""

    def refuse(**_: object) -> str:
        raise ConnectionError("tests do not use the network")

    monkeypatch.setattr("pooch.retrieve", refuse)


def rows(part: tuple[torch.Tensor, torch.Tensor]) -> set[bytes]:
    return {x.numpy().tobytes() for x in part[0]}


def check(data: Dataset) -> None:
    """What every data set promises."""
    for x, y in (data.train, data.validation, data.test):
        assert x.dtype == torch.float32
        assert x.shape == (len(y), *data.input_shape)
        assert x.isfinite().all()
        if data.classes is None:
            assert y.dtype == torch.float32
            assert y.shape == (len(x), data.outputs)
        else:
            assert y.dtype == torch.int64
            assert y.shape == (len(x),)
            assert len(data.classes) == data.outputs
            assert not len(y) or (int(y.min()) >= 0 and int(y.max()) < data.outputs)
        if len(data.input_shape) == 3:
            assert float(x.min()) >= 0
            assert float(x.max()) <= 1
    assert (data.target_scale is None) == (data.classes is not None or not data.has_targets)
    if data.target_scale is not None:
        assert torch.allclose(data.train[1].mean(0), torch.zeros(data.outputs), atol=1e-5)
        assert torch.allclose(data.train[1].std(0, correction=0), torch.ones(data.outputs), atol=1e-4)


@pytest.mark.parametrize("name", EMBEDDED)
class TestEmbedded:
    def test_promises(self, name: str) -> None:
        check(load(name))

    def test_the_same_seed_gives_the_same_parts_and_another_one_others(self, name: str) -> None:
        first, again, other = load(name), load(name), load(name, seed=1)
        for a, b in zip(first.train + first.test, again.train + again.test, strict=True):
            assert torch.equal(a, b)
        assert not torch.equal(first.train[0], other.train[0])

    def test_the_parts_do_not_overlap(self, name: str) -> None:
        data = load(name)
        assert not rows(data.train) & rows(data.validation)
        assert not rows(data.train) & rows(data.test)
        assert not rows(data.validation) & rows(data.test)

    def test_sizes(self, name: str) -> None:
        full = load(name)
        size = min(20, len(full.train[0]) // 2)
        small = load(name, train_size=size, validation_size=7)
        assert [len(part[0]) for part in (small.train, small.validation)] == [size, 7]
        assert len(small.test[0]) == len(full.test[0])
        none = load(name, validation_size=0)
        assert len(none.validation[0]) == 0
        assert len(none.train[0]) == len(full.train[0]) + len(full.validation[0])


def test_the_validation_part_does_not_depend_on_the_size_of_the_training_part() -> None:
    assert torch.equal(load("digits", train_size=50).validation[0], load("digits").validation[0])


def test_a_training_size_that_the_validation_part_cuts_into_takes_all_that_are_left() -> None:
    assert len(load("digits", train_size=1197, validation_size=97).train[0]) == 1100


def test_digits_are_all_there_and_nothing_was_lost() -> None:
    data = load("digits")
    images = torch.cat([data.train[0], data.validation[0], data.test[0]])
    assert images.shape == (1797, 1, 8, 8)
    assert float(images.sum() * 16) == pytest.approx(561718)  # scikit-learn's own sum


def test_the_sine_has_a_gap_in_training_and_none_in_testing() -> None:
    data = load("sine")
    assert data.input_scaling is not None
    train, test = (data.input_scaling.undo(part[0]) for part in (data.train, data.test))
    assert not ((train > -0.99) & (train < 1.49)).any()
    assert ((test > -0.9) & (test < 1.4)).sum() > 20
    assert (train < -1).any()
    assert (train > 1.5).any()
    assert train.abs().max() <= 4.001
    y = data.target_scale * data.train[1] + data.target_mean
    assert float((y - train.sin()).std()) == pytest.approx(0.1, rel=0.2)


def test_the_cubic_is_that_of_the_reference_of_hmc_and_its_test_points_are_others() -> None:
    data = load("cubic", validation_size=0)
    check(data)
    known = json.loads((Path(__file__).parent.parent / "methods" / "hmc_reference.json").read_text())["tanh40"]
    order = data.train[0].flatten().argsort()
    for part, name in zip(data.train, ("x", "y"), strict=True):
        assert torch.allclose(part.flatten()[order], torch.tensor(known[name]), atol=1e-5)
    assert data.input_scaling is not None
    assert data.target_scaling is not None
    x, y = data.input_scaling.undo(data.test[0]), data.target_scaling.undo(data.test[1])
    assert (len(x), bool(x.abs().max() <= 4.001)) == (1000, True)
    assert float((y - x**3).std()) == pytest.approx(3, rel=0.1)
    assert not torch.equal(load("cubic", seed=1).test[0], data.test[0])


def test_scaling_is_undone_exactly_and_constant_columns_are_kept() -> None:
    values = torch.tensor([[1.0, 7.0], [5.0, 7.0], [3.0, 7.0]], dtype=torch.float64)
    scaling = Scaling.of(values)
    assert torch.allclose(scaling.undo(scaling.apply(values)), values)
    assert torch.equal(scaling.apply(values)[:, 1], torch.zeros(3, dtype=torch.float64))


def test_log_likelihoods_in_original_units() -> None:
    data = load("diabetes")
    y, scale, mean = data.test[1].double(), data.target_scale.double(), data.target_mean.double()
    standardised = torch.distributions.Normal(torch.zeros(1).double(), torch.full((1,), 0.8).double())
    original = torch.distributions.Normal(mean, 0.8 * scale)
    expected = original.log_prob(y * scale + mean).sum(1).mean()
    found = data.log_likelihood_in_original_units(float(standardised.log_prob(y).sum(1).mean()))
    assert found == pytest.approx(float(expected), rel=1e-6)
    assert load("digits").log_likelihood_in_original_units(-1.5) == -1.5


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("fashionmnist", {}, ["'fashionmnist'", "'fashion_mnist'", "'digits'"]),
        ("digits", {"train_size": 0}, ["0", "1197"]),
        ("digits", {"train_size": 1198}, ["1198", "1197"]),
        ("digits", {"validation_size": -1}, ["-1"]),
        ("digits", {"validation_size": 1197}, ["1197"]),
        ("digits", {"split": 1}, ["split=1", "seed"]),
        ("boston", {"splits": "gaps"}, ["'boston'", "'gaps'", "'gap'", "'standard'"]),
        ("boston", {"splits": "random"}, ["'random'", "'gap'"]),
        ("digits", {"splits": "random"}, ["'random'", "seed"]),
        ("frey_face", {"splits": "gap"}, ["'frey_face'", "'gap'", "'standard', 'random'"]),
        ("frey_face", {"splits": "random", "split": 1}, ["one random split", "split=1", "seed"]),
    ],
)
def test_what_cannot_be_loaded_is_explained(name: str, options: dict, words: list[str]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        load(name, **options)


def mnist_folder(tmp_path: Path, labels: int = 30) -> Path:
    folder = tmp_path / "mnist"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for part, count in (("train", 30), ("t10k", 10)):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", generator.integers(0, 256, (count, 28, 28)))
        size = labels if part == "train" else count
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", generator.integers(0, 10, size))
    return tmp_path


class TestImages:
    def test_idx_files_become_images_between_0_and_1(self, tmp_path: Path) -> None:
        data = load("mnist", folder=mnist_folder(tmp_path), train_size=20)
        check(data)
        assert (len(data.train[0]), len(data.validation[0]), len(data.test[0])) == (20, 3, 10)
        assert float(data.train[0].max()) == 1
        assert data.input_shape == (1, 28, 28)

    def test_files_that_do_not_belong_together(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=says("30 images", "29 labels")):
            load("mnist", folder=mnist_folder(tmp_path, labels=29))

    def test_a_missing_set_says_where_it_was_looked_for(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=says(str(tmp_path), "OSCULATE_DATA", "Fashion-MNIST")):
            load("fashion_mnist", folder=tmp_path)


class TestSplits:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "uci_regression").mkdir()
        x = np.random.default_rng(0).normal(size=(60, 2)) * [3, 0] + [10, 7]
        standard = np.zeros((3, 60), dtype=bool)
        standard[np.arange(3), np.arange(3)] = True
        gap = np.zeros((2, 60), dtype=bool)
        gap[:, 20:40] = True
        np.savez(
            tmp_path / "uci_regression" / "boston.npz",
            X=x,
            y=x[:, 0] * 2 + 1e6,
            standard_test_mask=standard,
            gap_test_mask=gap,
        )
        return tmp_path

    def test_the_masks_choose_the_test_rows(self, folder: Path) -> None:
        data = load("boston", folder=folder, split=2)
        check(data)
        x = np.load(folder / "uci_regression" / "boston.npz")["X"]
        assert np.allclose(data.input_scaling.undo(data.test[0]).numpy(), x[2:3], rtol=1e-5)
        assert len(load("boston", folder=folder, splits="gap", split=1).test[0]) == 20

    def test_targets_of_a_million_keep_their_digits(self, folder: Path) -> None:
        data = load("boston", folder=folder)
        # y is linear in the first input, so standardised they agree
        assert torch.allclose(data.train[0][:, :1], data.train[1], atol=1e-4)

    def test_a_split_that_is_not_there(self, folder: Path) -> None:
        with pytest.raises(ValueError, match=says("3 standard splits", "no split 3")):
            load("boston", folder=folder, split=3)


class TestSplitsWithValidation:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "uci_classification").mkdir()
        x = np.random.default_rng(0).normal(size=(40, 3)) * [5, 1, 0] + [100, 0, 2]
        split = np.zeros((2, 40), dtype=np.uint8)
        split[0, 20:28], split[0, 28:] = 1, 2
        split[1, :10], split[1, 10:15] = 2, 1
        np.savez(tmp_path / "uci_classification" / "digits.npz", X=x, y=np.arange(40) % 4, split=split)
        return tmp_path

    def test_the_file_says_which_rows_validate(self, folder: Path) -> None:
        data = load("uci_digits", folder=folder, split=1, seed=3)
        check(data)
        x = np.load(folder / "uci_classification" / "digits.npz")["X"]
        assert np.allclose(data.input_scaling.undo(data.validation[0]).numpy(), x[10:15], atol=1e-4)
        assert np.allclose(data.input_scaling.undo(data.test[0]).numpy(), x[:10], atol=1e-4)
        assert data.test[1].tolist() == [0, 1, 2, 3] * 2 + [0, 1]
        assert data.classes == ("0", "1", "2", "3")

    def test_inputs_are_standardised_by_the_training_part(self, folder: Path) -> None:
        data = load("uci_digits", folder=folder)
        torch.testing.assert_close(data.train[0].mean(0), torch.zeros(3), atol=1e-5, rtol=0)
        torch.testing.assert_close(data.train[0].std(0, correction=0), torch.tensor([1.0, 1.0, 0.0]))
        assert float(data.test[0].mean(0)[:2].abs().max()) > 1e-3
        assert len(load("uci_digits", folder=folder, train_size=7).train[0]) == 7

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"split": 2}, ["2 standard splits", "no split 2"]),
            ({"splits": "gap"}, ["'uci_digits'", "'gap'", "known: 'standard'"]),
            ({"validation_size": 3}, ["validation_size is 3", "validation part of 8 rows"]),
            ({"train_size": 21}, ["got 21", "from 1 to 20"]),
        ],
    )
    def test_what_it_does_not_have(self, folder: Path, options: dict, words: list[str]) -> None:
        with pytest.raises(ValueError, match=says(*words)):
            load("uci_digits", folder=folder, **options)


def test_real_classification_splits(data_folder: Path) -> None:
    parts = [load("glass", folder=data_folder, split=i) for i in range(10)]
    assert {tuple(len(p[0]) for p in (d.train, d.validation, d.test)) for d in parts} == {(149, 33, 32)}
    assert len({d.test[0].numpy().tobytes() for d in parts}) == 10


FILES = [name for name in REGISTRY if name not in EMBEDDED]


#: Files that take long to read, or are not in every folder.
ELSEWHERE = ("cifar10_jpeg", "cifar100", "svhn", "frey_face")


@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith("mnist") and name not in ELSEWHERE])
def test_real_files(name: str, data_folder: Path) -> None:
    check(load(name, folder=data_folder))


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "kmnist", "notmnist"])
def test_real_images(name: str, data_folder: Path) -> None:
    data = load(name, folder=data_folder, train_size=500)
    check(data)
    means = {"mnist": 0.1325, "fashion_mnist": 0.2868, "kmnist": 47.062 / 255, "notmnist": 0.4266}
    images = data.test[0]
    if name == "notmnist":  # a random part of it is for testing, so the published mean is that of all
        whole = load(name, folder=data_folder)
        images = torch.cat([part[0] for part in (whole.train, whole.validation, whole.test)])
    assert float(images.mean()) == pytest.approx(means[name], abs=2e-4)
    assert len(images) == 10_000


@pytest.mark.parametrize(("splits", "count"), [("standard", 20), ("gap", 13)])
def test_real_splits(splits: str, count: int, data_folder: Path) -> None:
    tests = [load("boston", folder=data_folder, splits=splits, split=i) for i in range(count)]
    assert len({len(t.test[0]) + len(t.train[0]) + len(t.validation[0]) for t in tests}) == 1
    with pytest.raises(ValueError, match=f"{count} {splits} splits"):
        load("boston", folder=data_folder, splits=splits, split=count)


@pytest.mark.parametrize("name", ["digits", "diabetes"])
def test_reconstructing_data_have_their_inputs_as_targets(name: str) -> None:
    data = load(name, train_size=20)
    same = data.reconstructing()
    for (x, y), (inputs, _) in zip(
        (same.train, same.validation, same.test), (data.train, data.validation, data.test), strict=True
    ):
        assert torch.equal(x, inputs)
        assert torch.equal(y, inputs)
    assert same.classes is None
    assert same.target_scaling is same.input_scaling is data.input_scaling
