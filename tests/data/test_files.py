"""Finding files in the promised order, and refusing damaged ones with a reason."""

import gzip
import hashlib
import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch

from osculate.data import files
from osculate.data.files import Download, find, read_all_npz, read_idx, read_npz
from tests.errors import says


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """An explicit folder, a folder named by the variable and a cache, all empty."""
    folders = {name: tmp_path / name for name in ("explicit", "named", "cache")}
    for folder in folders.values():
        (folder / "toy").mkdir(parents=True)
    monkeypatch.setenv("OSCULATE_DATA", str(folders["named"]))
    monkeypatch.setattr(files, "user_cache", lambda: folders["cache"])
    return folders


def write(folder: Path, text: str = "x") -> Path:
    path = folder / "toy" / "a.npz"
    path.write_text(text)
    return path


def write_idx(path: Path, array: np.ndarray, magic: int | None = None) -> Path:
    header = struct.pack(f">{1 + array.ndim}I", magic or 0x0800 + array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))
    return path


class TestFind:
    def test_the_named_folder_comes_before_the_cache(self, places: dict[str, Path]) -> None:
        in_cache = write(places["cache"])
        assert find("toy/a.npz") == in_cache
        named = write(places["named"])
        assert find("toy/a.npz") == named

    def test_an_explicit_folder_is_the_only_one(self, places: dict[str, Path]) -> None:
        write(places["named"])
        with pytest.raises(FileNotFoundError, match="explicit"):
            find("toy/a.npz", places["explicit"])
        assert find("toy/a.npz", write(places["explicit"]).parent.parent).parent.parent == places["explicit"]
        assert find("toy/a.npz", places["explicit"] / "toy") == places["explicit"] / "toy" / "a.npz"

    def test_the_folder_of_another_set_is_not_taken_for_this_one(self, places: dict[str, Path]) -> None:
        with pytest.raises(FileNotFoundError):
            find("other/a.npz", write(places["explicit"]).parent)

    def test_nowhere(self, places: dict[str, Path]) -> None:
        words = says(str(places["named"]), str(places["cache"]), "OSCULATE_DATA", "an archive of toys")
        with pytest.raises(FileNotFoundError, match=words):
            find("toy/a.npz", describe="an archive of toys")

    def test_a_download_is_verified_and_cached(
        self, places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fetched: list[str] = []

        class Local:
            """Stands in for the network: copies bytes to where pooch wants them."""

            def __init__(self, **_: object) -> None: ...

            def __call__(self, url: str, output_file: str, pooch: object) -> None:
                fetched.append(url)
                Path(output_file).write_bytes(b"original")

        monkeypatch.setattr("pooch.HTTPDownloader", Local)
        good = Download("https://example.org/a.npz", hashlib.md5(b"original").hexdigest())
        path = find("toy/a.npz", download=good)
        assert path == places["cache"] / "toy" / "a.npz"
        assert path.read_bytes() == b"original"
        find("toy/a.npz", download=good)
        assert len(fetched) == 1, "the second time it comes from the cache"
        path.unlink()
        bad = Download("https://example.org/a.npz", hashlib.md5(b"another").hexdigest())
        with pytest.raises(FileNotFoundError, match=says("https://example.org/a.npz", "failed", "OSCULATE_DATA")):
            find("toy/a.npz", download=bad)
        assert not path.exists(), "a file with another checksum does not stay"

    def test_only_https_is_downloaded(self) -> None:
        for url in ("http://example.org/a.npz", "ftp://example.org/a.npz", "file:///etc/passwd"):
            with pytest.raises(ValueError, match=says(url, "https")):
                Download(url, "0" * 32)

    @pytest.mark.parametrize(
        ("location", "followed"), [("https://b.org/a", True), ("/a", True), ("http://b.org/", False)]
    )
    def test_a_redirection_to_another_protocol_is_refused(
        self, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch, location: str, followed: bool
    ) -> None:
        class Response:
            is_redirect, url, headers = True, "https://example.org/a", {"location": location}

        def get(*_: object, hooks: dict[str, Callable[..., object]], **__: object) -> None:
            hooks["response"](Response())
            raise ConnectionError("followed")

        monkeypatch.setattr("requests.get", get)
        monkeypatch.setattr("requests.Session.get", get)
        with pytest.raises(FileNotFoundError, match="followed" if followed else "'http://b.org/' is not https"):
            find("toy/a.npz", download=Download("https://example.org/a", "0" * 32))

    def test_no_network(self, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(**_: object) -> str:
            raise ConnectionError("no route to host")

        monkeypatch.setattr("pooch.retrieve", fail)
        with pytest.raises(FileNotFoundError, match=says("no route to host", "https://example.org/a")):
            find("toy/a.npz", download=Download("https://example.org/a", "0" * 32))


class TestIdx:
    def test_what_was_written_is_read(self, tmp_path: Path) -> None:
        images = np.arange(2 * 3 * 5).reshape(2, 3, 5)
        found = read_idx(write_idx(tmp_path / "i.gz", images), axes=3)
        assert found.dtype == torch.uint8
        assert torch.equal(found, torch.from_numpy(images).byte())

    def test_labels_are_not_images(self, tmp_path: Path) -> None:
        labels = write_idx(tmp_path / "l.gz", np.arange(40))
        with pytest.raises(ValueError, match=says("2049", "2051", "l.gz")):
            read_idx(labels, axes=3)

    def test_another_kind_of_number(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="3331"):
            read_idx(write_idx(tmp_path / "i.gz", np.zeros((2, 2, 2)), magic=0x0D03), axes=3)

    def test_other_length_than_the_header_says(self, tmp_path: Path) -> None:
        path = write_idx(tmp_path / "l.gz", np.arange(10))
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))
        with pytest.raises(ValueError, match=says("(10,)", "holds 9")):
            read_idx(path, axes=1)

    def test_no_more_is_inflated_than_is_declared_and_free(self, tmp_path: Path) -> None:
        path = tmp_path / "l.gz"
        path.write_bytes(gzip.compress(np.asarray([0x0801, 2**32 - 1], ">u4").tobytes() + bytes(100)))
        with (
            patch("osculate.data.files.free", return_value=2**20),
            pytest.raises(ValueError, match=says("4.3 GB", "MB")),
        ):
            read_idx(path, axes=1)
        path.write_bytes(gzip.compress(np.asarray([0x0801, 10], ">u4").tobytes() + bytes(10**7)))
        with pytest.raises(ValueError, match=says("(10,)", "holds more bytes")):
            read_idx(path, axes=1)

    @pytest.mark.parametrize("keep", [5, 25])
    def test_a_download_that_was_cut_off(self, tmp_path: Path, keep: int) -> None:
        path = write_idx(tmp_path / "l.gz", np.arange(200))
        path.write_bytes(path.read_bytes()[:keep])
        with pytest.raises(ValueError, match=says("l.gz", "no complete gzip file")):
            read_idx(path, axes=1)

    def test_no_gzip_and_no_header(self, tmp_path: Path) -> None:
        path = tmp_path / "l.gz"
        path.write_bytes(b"<html>404</html>")
        with pytest.raises(ValueError, match="no complete gzip file"):
            read_idx(path, axes=1)
        path.write_bytes(gzip.compress(b"abc"))
        with pytest.raises(ValueError, match=says("3 bytes", "8")):
            read_idx(path, axes=1)


class TestNpz:
    def test_a_missing_array_is_named_with_those_that_are_there(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", X=np.zeros(2), z=np.ones(2))
        assert read_npz(tmp_path / "a.npz", "z", "X")[0].tolist() == [1, 1]
        with pytest.raises(ValueError, match=says("'y'", "'X'", "'z'")):
            read_npz(tmp_path / "a.npz", "X", "y")

    def test_objects_are_refused(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", X=np.array([{"a": 1}], dtype=object))
        with pytest.raises(ValueError, match=says("a.npz", "plain arrays")):
            read_npz(tmp_path / "a.npz", "X")

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"\x93NUMPY", b"text"])
    def test_no_archive(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises(ValueError, match="a.npz cannot be read"):
            read_npz(tmp_path / "a.npz", "X")

    def test_a_single_array_is_no_archive(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.zeros(3))
        with pytest.raises(ValueError, match="a.npy cannot be read"):
            read_npz(tmp_path / "a.npy", "X")


def test_an_archive_that_would_fill_the_memory_is_not_inflated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, X=np.zeros((1000, 1000)), y=np.zeros(1000))
    assert path.stat().st_size < 20_000
    monkeypatch.setattr("osculate.data.files.free", lambda device: 10_000_000)
    with pytest.raises(ValueError, match=says("8.0 MB", "'X'", "10.0 MB")):
        read_all_npz(path)


def test_an_archive_whose_sizes_differ_from_its_headers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**3)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", header.getvalue() + bytes(80))
    with pytest.raises(ValueError, match=says("X.npy declares", "numpy.savez")):
        read_all_npz(path)
