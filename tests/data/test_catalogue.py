"""The catalogue of data sets agrees with their readers, and nothing is downloaded that is there."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from osculate.data import REGISTRY, load
from osculate.data.catalogue import CATALOGUE, fetch
from osculate.data.dataset import Request
from osculate.data.files import Download
from tests.errors import says


@dataclass(frozen=True)
class Recording(Request):
    """A request that finds nothing and remembers what was asked for."""

    asked: list[tuple[str, Download | None]] = field(default_factory=list)

    def find(self, relative: str, describe: str = "", original: Download | None = None) -> Path:
        self.asked.append((relative, original))
        raise FileNotFoundError(relative)


@pytest.mark.parametrize("name", REGISTRY)
def test_the_files_are_those_that_the_reader_asks_for(name: str) -> None:
    request, files = Recording(), CATALOGUE[name]
    if files.built_in:
        REGISTRY[name](request)
        assert not request.asked
        return
    with pytest.raises(FileNotFoundError):
        REGISTRY[name](request)
    *copies, (path, original) = request.asked
    assert {copy for copy, _ in copies} <= set(files.instead)
    assert files.originals[path] == original


def test_every_data_set_is_in_the_catalogue() -> None:
    assert list(CATALOGUE) == list(REGISTRY)
    assert {name for name, files in CATALOGUE.items() if files.downloads} == {
        *("mnist", "fashion_mnist", "kmnist", "cifar10", "cifar100", "svhn")
    }


def test_a_shape_that_is_known_is_that_of_the_data() -> None:
    for name in ("mnist", "cifar10"):
        try:
            dataset = load(name)
        except FileNotFoundError:
            pytest.skip(f"{name} is not here")
        assert dataset.input_shape == CATALOGUE[name].shape


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OSCULATE_DATA", str(tmp_path / "named"))
    monkeypatch.setattr("osculate.data.files.user_cache", lambda: tmp_path / "cache")
    return tmp_path


def test_what_is_there_is_not_fetched(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (places / "named" / "kmnist").mkdir(parents=True)
    for name in CATALOGUE["kmnist"].instead:
        assert CATALOGUE["kmnist"].found() is None, "not before all files are there"
        (places / "named" / name).write_bytes(b"")
    assert fetch("kmnist") == [places / "named" / "kmnist"]
    assert fetch("digits") == []


def test_missing_files_are_fetched_one_by_one(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetched(relative: str, download: Download) -> Path:
        asked.append((relative, download.url.rpartition("/")[2]))
        return places / "cache" / relative

    monkeypatch.setattr("osculate.data.files._fetch", fetched)
    assert fetch("svhn") == [places / "cache" / "svhn" / f"{part}_32x32.mat" for part in ("train", "test")]
    assert asked == [(f"svhn/{part}_32x32.mat", f"{part}_32x32.mat") for part in ("train", "test")]


def test_what_has_no_public_original_says_where_to_put_it(places: Path) -> None:
    with pytest.raises(ValueError, match=says("'boston'", "OSCULATE_DATA", "uci_regression/boston.npz")):
        fetch("boston")
    with pytest.raises(ValueError, match=says("unknown data set 'mnits'", "did you mean 'mnist'")):
        fetch("mnits")
