"""Folders of images, and data sets of Hugging Face on disk."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image

from osculate.data import read
from osculate.data.own import pictures
from tests.data.test_loading import check
from tests.errors import says


def picture(path: Path, size: tuple[int, int] = (12, 8), mode: str = "RGB", value: int = 100, **options: Any) -> None:
    """An image with a bright left half, of this width and height."""
    pixels = np.full((size[1], size[0], 3), value, np.uint8)
    pixels[:, : size[0] // 2] = 250
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).convert(mode).save(path, **options)


def folder_of(root: Path, number: int = 12, **options: Any) -> Path:
    for word in ("cat", "dog"):
        for index in range(number):
            picture(root / word / f"{index:02d}.jpg", value=50 + 100 * (word == "dog"), **options)
    return root


def test_folders_are_classes(tmp_path: Path) -> None:
    (folder_of(tmp_path / "pets") / ".DS_Store").write_text("hidden")
    data = read(tmp_path / "pets")
    check(data)
    assert data.classes == ("cat", "dog")
    assert data.input_shape == (3, 8, 12)
    x, y = data.train
    dark = x[:, 0, 0, -1] < 0.4
    assert torch.equal(dark, y == 0)
    assert float(x.min()) >= 0
    assert float(x.max()) <= 1
    assert "8 × 12 pixels" in str(data.schema)


def test_images_without_labels_and_a_part_of_their_own(tmp_path: Path) -> None:
    folder_of(tmp_path)
    data = read(tmp_path / "cat")
    assert not data.has_targets
    assert data.reconstructing().outputs
    assert read(tmp_path, target="none").has_targets is False
    for part in ("train", "val", "test"):
        folder_of(tmp_path / "parts" / part, 4)
    data = read(tmp_path / "parts")
    assert data.classes == ("cat", "dog")
    assert [len(each[0]) for each in (data.train, data.validation, data.test)] == [8, 8, 8]


@pytest.mark.parametrize("role", ["target", "groups", "split_column"])
def test_a_column_named_for_a_folder_is_refused(tmp_path: Path, role: str) -> None:
    with pytest.raises(ValueError, match=says(f"{role}='patient'", "holds images", "leave it out")):
        read(folder_of(tmp_path, 3), **{role: "patient"})


def test_grey_images_have_one_channel_and_palettes_three(tmp_path: Path) -> None:
    for index in range(6):
        picture(tmp_path / "grey" / f"{index}.png", mode="L")
        picture(tmp_path / "mixed" / f"{index}.png", mode=("L", "RGB", "P", "RGBA", "1", "RGB")[index])
    assert read(tmp_path / "grey").input_shape == (1, 8, 12)
    assert read(tmp_path / "mixed").input_shape == (3, 8, 12)


def test_exif_turns_images_before_they_are_scaled(tmp_path: Path) -> None:
    for index in range(6):
        exif = Image.Exif()
        exif[pictures.ORIENTATION] = 6  # by 90° clockwise: the left half becomes the upper one
        picture(tmp_path / f"{index}.jpg", exif=exif, quality=95)
    x = read(tmp_path).train[0]
    assert x.shape[1:] == (3, 12, 8)
    assert float(x[:, :, 0].mean()) > 0.9
    assert float(x[:, :, -1].mean()) < 0.5
    assert read(tmp_path, image_size=4).input_shape == (3, 4, 4)


def test_new_images_get_the_size_and_channels_of_the_training(tmp_path: Path) -> None:
    schema = read(folder_of(tmp_path / "pets"), image_size=6).schema
    assert schema is not None
    picture(tmp_path / "new" / "a.png", (40, 30), "L")
    picture(tmp_path / "new" / "b.jpg", (10, 90))
    content = schema.open(tmp_path / "new", targets=False)
    assert schema.tensors(content)[0].shape == (2, 3, 6, 6)
    assert schema.labels(content) == {"file": ["a.png", "b.jpg"]}
    schema = read(tmp_path / "pets").schema
    assert schema is not None
    with pytest.raises(ValueError, match=says("2 sizes", "image_size=64")):
        schema.read(tmp_path / "new", targets=False)
    picture(tmp_path / "other" / "c.jpg", (9, 9))
    with pytest.raises(ValueError, match=says("(3, 9, 9)", "(3, 8, 12)", "--image-size")):
        schema.read(tmp_path / "other", targets=False)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda root: (root / "cat" / "a.jpg").write_bytes(b"\xff\xd8 no image"), ["a.jpg", "mend or remove"]),
        (lambda root: (root / "cat" / "a.png").write_bytes(b"GIF89a"), ["a.png", "mend or remove"]),
        (lambda root: picture(root / "a.jpg"), ["holds images and folders", "'cat', 'dog'"]),
        (lambda root: picture(root / "cat" / "a.jpg", (30, 30)), ["2 sizes, from 8 × 12 to 30 × 30", "--image-size"]),
        (lambda root: (root / "bird").mkdir(), ["bird", "no images", "remove it"]),
        (lambda root: picture(root / "bird" / "deeper" / "a.jpg"), ["bird", "'deeper'", "directly"]),
        (lambda root: (root / "dog").rename(root.parent / "dog"), ["one folder only, 'cat'"]),
        (lambda root: Image.new("I;16", (12, 8)).save(root / "cat" / "a.png"), ["a.png", "more than 8 bits"]),
        (lambda root: (root / "cat").rename(root / "train"), ["'dog'", "'train'"]),
    ],
)
def test_folders_that_are_refused(tmp_path: Path, spoil: Any, words: list[str]) -> None:
    root = folder_of(tmp_path / "pets", 3)
    spoil(root)
    if words == ["'dog'", "'train'"]:
        assert read(root).classes == ("dog", "train"), "no part without others"
        return
    with pytest.raises(ValueError, match=says(*words)):
        read(root)


def test_limits_of_pixels_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_of(tmp_path, 3)
    monkeypatch.setattr(pictures, "LARGEST", 50)
    with pytest.raises(ValueError, match=says("12 × 8 pixels", "more than 50", "scale it down")):
        read(tmp_path)
    monkeypatch.setattr(pictures, "LARGEST", 10**6)
    monkeypatch.setattr(pictures, "free", lambda _: 100)
    with pytest.raises(ValueError, match=says("memory are free", "--image-size")):
        read(tmp_path)


def test_other_files_are_named(tmp_path: Path) -> None:
    (folder_of(tmp_path) / "cat" / "readme.txt").write_text("cats")
    with pytest.warns(UserWarning, match=says("no images", "'readme.txt'")):
        read(tmp_path)


# ---- Hugging Face ---------------------------------------------------------------------------------------------------


def save_to_disk(folder: Path, frame: pd.DataFrame, features: dict[str, Any]) -> None:
    """Write what ``datasets.Dataset.save_to_disk`` writes."""
    folder.mkdir(parents=True)
    found = pa.Table.from_pandas(frame, preserve_index=False)
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as file,
        pa.ipc.new_stream(file, found.schema) as out,
    ):
        out.write_table(found)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_fingerprint": "1", "_split": "train"}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))


def flowers(rows: int = 40) -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame({"petal": random.normal(size=rows), "label": np.arange(rows) % 3})


LABEL = {"label": {"names": ["iris", "rose", "tulip"], "_type": "ClassLabel"}}


def test_a_saved_data_set_is_read_with_its_names_of_classes(tmp_path: Path) -> None:
    save_to_disk(tmp_path / "flowers", flowers(), {"petal": {"dtype": "float64", "_type": "Value"}, **LABEL})
    data = read(tmp_path / "flowers")
    check(data)
    assert data.classes == ("iris", "rose", "tulip")
    assert data.schema is not None
    assert data.schema.features == ("petal",)


def test_saved_splits_are_the_parts(tmp_path: Path) -> None:
    for part, rows in {"train": 30, "test": 9}.items():
        save_to_disk(tmp_path / "flowers" / part, flowers(rows), LABEL)
    (tmp_path / "flowers" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    data = read(tmp_path / "flowers")
    assert [len(each[0]) for each in (data.train, data.validation, data.test)] == [27, 3, 9]
    assert data.schema is not None
    assert len(data.schema.read(tmp_path / "flowers", targets=False)[0]) == 39


def test_images_of_a_saved_data_set_are_decoded(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    cell = {"bytes": (tmp_path / "a.png").read_bytes(), "path": None}
    frame = flowers(12).assign(image=[cell] * 12).drop(columns="petal")
    save_to_disk(tmp_path / "flowers", frame, {"image": {"_type": "Image"}, **LABEL})
    data = read(tmp_path / "flowers")
    assert data.input_shape == (3, 8, 12)
    assert data.classes == ("iris", "rose", "tulip")


def test_a_saved_data_set_that_is_damaged(tmp_path: Path) -> None:
    save_to_disk(tmp_path / "flowers", flowers(), LABEL)
    (tmp_path / "flowers" / "data-00000-of-00001.arrow").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=says("data-00000-of-00001.arrow", "damaged", "save the data set again")):
        read(tmp_path / "flowers")
