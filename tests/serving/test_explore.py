"""The views of a run, and the routes of the page."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("fastapi")

import osculate as osc
from osculate.cli import main
from osculate.cli.checkpoint import MODEL, read_model
from osculate.cli.explored import view_of
from osculate.cli.folder import POSTERIOR
from osculate.cli.options import DataOptions
from osculate.cli.predict import PosteriorOptions
from osculate.serving.explorer import PAGES, explorer
from osculate.serving.guard import App
from osculate.serving.settings import Access, Limits
from tests.errors import says
from tests.serving.calls import call
from tests.serving.runs import saved_run
from tests.serving.test_settings import SECRET


def page(folder: Path, access: Access | None = None) -> tuple[App, dict[str, Any]]:
    """The application of a run, and what it says of it."""
    view = view_of(PosteriorOptions(folder))
    app = explorer(view, view.content(), access or Access(), Limits())
    headers = {} if access is None else {"authorization": f"Bearer {access.token}"}
    return app, call(app, "GET", "/api/run", headers=headers).json()


def test_a_classifier(classifier: Path) -> None:
    _, found = page(classifier)
    (x, y), (tensors, card) = (
        DataOptions(str(classifier / "data.npz")).load().test,
        read_model(classifier / "model.safetensors"),
    )
    assert card is not None
    network = card.network()
    network.load_state_dict(tensors)
    alone = network(x).softmax(1)
    np.testing.assert_allclose(found["scores"]["network"]["confidence"], alone.amax(1).tolist(), rtol=1e-4)
    assert found["scores"]["network"]["right"] == (alone.argmax(1) == y).int().tolist()
    entropies = [input_["entropy"]["posterior"] for input_ in found["uncertain"]]
    assert entropies == sorted(entropies, reverse=True)
    assert max(entropies) == max(found["inside"]["posterior"])
    assert found["outside"] == {}


def test_images_have_pictures_and_sets_out_of_distribution(tmp_path: Path) -> None:
    saved_run(tmp_path, DataOptions(data="digits", train_size=100), "mlp", None)
    _, found = page(tmp_path)
    assert set(found["outside"]) == {"rotated digits", "shuffled pixels"}
    assert found["uncertain"][0]["picture"]["shape"] == [1, 8, 8]


def test_a_regression_and_its_partial_dependence(regressor: Path) -> None:
    app, found = page(regressor)
    y = np.load(regressor / "data.npz")["y"]
    assert all(np.abs(y - target).min() < 1e-3 for (target,) in found["target"])
    assert all(clean < whole for (clean,), (whole,) in zip(found["function"], found["deviation"], strict=True))
    answer = call(app, "POST", "/api/dependence", {"input": 0}).json()
    served = view_of(PosteriorOptions(regressor))
    x = served.dataset.test[0]
    rows = x[torch.linspace(0, len(x) - 1, min(40, len(x))).long()].clone()
    scaling, target = served.dataset.input_scaling, served.dataset.target_scaling
    rows[:, 0] = (answer["values"][3] - scaling.mean[0]) / scaling.scale[0]
    f = target.undo(osc.predict(served.served.q, rows, noise=False).mean).mean()
    assert abs(answer["mean"][3][0] - float(f)) < 4 * answer["deviation"][3][0] / 8  # 64 draws
    for wrong in ({"input": 2}, {"input": -1}, {"input": True}, {"input": 0.5}, {}):
        assert call(app, "POST", "/api/dependence", wrong).status == 422


def test_an_autoencoder(autoencoder: Path) -> None:
    app, found = page(autoencoder)
    assert len(found["codes"][0]) == len(found["low"]) == 2
    assert all(
        low < value < high
        for code in found["codes"]
        for low, value, high in zip(found["low"], code, found["high"], strict=True)
    )
    assert len(found["plane"]["heat"]) == found["plane"]["points"] ** 2
    code = found["codes"][0]
    answer = call(app, "POST", "/api/decode", {"code": code}).json()
    assert answer["mean"]["shape"] == answer["deviation"]["shape"] == [1, 8, 8]
    assert call(app, "POST", "/api/decode", {"code": code}).json() == answer
    r = osc.autoencoders.Representation(view_of(PosteriorOptions(autoencoder)).representation.posterior)
    image = r.decode(torch.tensor([code]), 10, torch.Generator().manual_seed(0))
    assert abs(answer["average"] - float(image.mean_variance.sqrt().mean())) < 1e-5
    plane = call(app, "POST", "/api/plane", {"axes": [1, 0], "code": code}).json()
    turned = np.array(plane["heat"]).reshape(24, 24)
    assert np.allclose(turned, np.array(found["plane"]["heat"]).reshape(24, 24).T[::-1, ::-1], rtol=1e-4)
    for wrong in ({}, {"code": [0]}, {"code": [0, "1"]}, {"code": [0, 1e9]}, {"code": [True, 0]}):
        assert call(app, "POST", "/api/decode", wrong).status == 422
    for axes in (None, [0], [0, 2], [0, 1, 1], ["0", 1]):
        assert call(app, "POST", "/api/plane", {"axes": axes, "code": code}).status == 422
    assert call(app, "POST", "/api/decode", b'{"code": [NaN, 0]}', {"content-type": "application/json"}).status == 422
    assert (
        call(app, "POST", "/api/decode", json.dumps({"code": code}).encode(), {"content-type": "text/plain"}).status
        == 415
    )


def test_a_reconstruction(reconstruction: Path, tmp_path: Path) -> None:
    _, found = page(reconstruction)
    assert found["mean"]["shape"] == [12, 16]
    assert len(found["samples"]) == 12
    (tmp_path / "reconstruction.npz").symlink_to(reconstruction / "reconstruction.npz")
    with pytest.raises(ValueError, match=says("a link out of the folder")):
        view_of(PosteriorOptions(tmp_path))
    (tmp_path / "reconstruction.npz").unlink()
    np.savez(tmp_path / "reconstruction.npz", mean=np.ones((2, 2)), stddev=np.ones((3, 2)), samples=np.ones((1, 2, 2)))
    with pytest.raises(ValueError, match=says("images of one shape")):
        view_of(PosteriorOptions(tmp_path)).content()


def test_the_page_loads_nothing_from_elsewhere_and_sets_texts_as_texts() -> None:
    for path in PAGES.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(
            r"https?:|//\w+\.|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|\son\w+=", text
        ), path


def test_files_of_the_page_are_there_without_a_token_and_nothing_of_the_run_is(classifier: Path) -> None:
    app, found = page(classifier, Access(token=SECRET))
    assert found["kind"] == "classifier"
    for path in ("/", "/main.js", "/style.css"):
        answer = call(app, "GET", path)
        assert answer.status == 200
        assert found["classes"][0] not in answer.body.decode()
    assert call(app, "GET", "/").headers["content-type"].startswith("text/html")
    assert call(app, "GET", "/api/run").status == 401
    for path in ("/../pyproject.toml", "/model.safetensors", "/%2e%2e/main.js", "/pages/main.js"):
        assert call(app, "GET", path, headers={"authorization": f"Bearer {SECRET}"}).status == 404
    assert call(app, "GET", "/", headers={"host": "evil.example"}).status == 400


def test_a_folder_without_a_run_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", str(tmp_path), "--no-progress"]) == 2
    assert "there is no file at" in capsys.readouterr().err


def test_a_run_without_a_posterior_has_one_curve_and_says_so(classifier: Path, tmp_path: Path) -> None:
    (tmp_path / MODEL).write_bytes((classifier / MODEL).read_bytes())
    view = view_of(PosteriorOptions(tmp_path), str(classifier / "data.npz"))
    found = view.content()
    assert found["scores"].keys() == found["inside"].keys() == {"network"}
    assert found["uncertain"][0]["probabilities"].keys() == {"network"}
    assert "run osculate fit" in found["notes"][0]


def test_own_data_named_like_a_known_set_and_without_a_test_part(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, part = random.normal(size=(120, 2)), np.repeat(["train", "validation"], 60)
    np.savez(tmp_path / "digits.npz", X=x, y=(x[:, 0] > 0).astype(int), part=part)
    saved_run(tmp_path, DataOptions(data=str(tmp_path / "digits.npz"), split_column="part"), "mlp", None)
    _, found = page(tmp_path)
    assert found["title"] == "digits"
    assert found["outside"] == {}
    assert found["inputs"] == 60
    assert "validation part" in found["notes"][0]


def test_data_outside_of_the_folder_are_not_shown_unless_they_are_named(classifier: Path, tmp_path: Path) -> None:
    for name in (MODEL, POSTERIOR):
        (tmp_path / name).write_bytes((classifier / name).read_bytes())
    with pytest.raises(ValueError, match=says("outside of its folder", "pass --data")):
        view_of(PosteriorOptions(tmp_path))
    assert view_of(PosteriorOptions(tmp_path), str(classifier / "data.npz")).content()["inputs"]


def test_paths_that_are_not_there_name_no_page_that_is_not_there(classifier: Path) -> None:
    app, _ = page(classifier)
    assert "/docs" not in call(app, "GET", "/nothing").json()["error"]
    assert call(app, "HEAD", "/health").status == 200


def test_columns_of_a_table_have_names_units_and_whole_categories(table: Path) -> None:
    app, found = page(table)
    kinds = {column["name"]: column["kind"] for column in found["columns"]}
    assert kinds == {"size": "number", "colour": "category", "day": "date"}
    assert found["outputs"] == ["price"]
    sizes, colours, days = zip(*found["x"], strict=True)
    assert set(sizes) == {None, *map(float, range(7))}
    assert set(colours) <= {None, "red", "blue"}
    assert all(day == round(day) for day in days)  # since 1970
    values = call(app, "POST", "/api/dependence", {"input": 1}).json()
    assert values["values"] == ["blue", "red"]
    view = view_of(PosteriorOptions(table))
    x = view.dataset.test[0]
    rows = x[torch.linspace(0, len(x) - 1, min(40, len(x))).long()].clone()
    place = list(view.served.card.schema.features).index("colour=blue")
    rows[:, place : place + 3] = torch.tensor([0.0, 1.0, 0.0])  # red, and not missing
    mean = view.dataset.target_scaling.undo(osc.predict(view.served.q, rows, noise=False).mean).mean()
    assert abs(values["mean"][1][0] - float(mean)) < 4 * values["deviation"][1][0] / 8  # 64 draws
    assert call(app, "POST", "/api/dependence", {"input": 3}).status == 422
