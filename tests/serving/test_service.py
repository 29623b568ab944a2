"""The routes of a service, and what a request passes before them."""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("fastapi")

import osculate as osc
from osculate.cli.checkpoint import MODEL
from osculate.cli.options import DataOptions
from osculate.cli.predict import PosteriorOptions
from osculate.cli.served import data_of, held_out, maker, opened, quantile
from osculate.serving.application import Facts, Model, Prediction, application
from osculate.serving.guard import App
from osculate.serving.settings import Access, Limits
from tests.errors import says
from tests.serving.calls import CSV, JSON, call, called, together
from tests.serving.runs import SCRIPT, saved_run
from tests.serving.test_settings import SECRET

ROWS = [[9.5, 10.25], [14.0, 3.5], [100.0, -100.0]]


def service(folder: Path, threshold: float | None = 0.5, access: Access | None = None, **limits: Any) -> App:
    served = replace(opened(PosteriorOptions(folder)), threshold=threshold)
    return maker(served, workers=2)(access or Access(), Limits(**limits))


def test_probabilities_are_those_of_python(classifier: Path) -> None:
    app, served = service(classifier), opened(PosteriorOptions(classifier))
    y = osc.predict(served.q, torch.tensor(ROWS))
    for body, headers in (
        (json.dumps({"inputs": ROWS}).encode(), JSON),
        ("\n".join(",".join(map(str, row)) for row in ROWS).encode(), CSV),
    ):
        found = call(app, "POST", "/predict", body, headers).json()
        assert found["classes"] == [SCRIPT, "b"]
        assert [each["probabilities"] for each in found["predictions"]] == y.probs.tolist()
        assert [each["entropy"] for each in found["predictions"]] == y.entropy().tolist()
        assert [each["out_of_distribution"] for each in found["predictions"]] == (y.entropy() > 0.5).tolist()
        for each in found["predictions"]:
            assert 0 <= each["mutual_information"] <= each["entropy"]
            assert each["label"] == found["classes"][int(np.argmax(each["probabilities"]))]


def test_real_values_are_in_their_own_units(regressor: Path) -> None:
    app, served = service(regressor, threshold=None), opened(PosteriorOptions(regressor))
    target = served.card.scaling("target")
    assert target is not None
    y = osc.predict(served.q, served.card.schema.read({"X": np.array(ROWS)}, targets=False)[0])
    found = call(app, "POST", "/predict", {"inputs": ROWS}).json()["predictions"]
    assert [each["mean"] for each in found] == target.undo(y.mean).tolist()
    assert [each["standard_deviation"] for each in found] == (y.stddev * target.scale).tolist()
    assert all(each["function_standard_deviation"] < each["standard_deviation"] for each in found)
    assert all(each["out_of_distribution"] is None and "label" not in each for each in found)
    assert call(app, "GET", "/model").json()["outputs"] == ["y"]


def test_the_threshold_is_exceeded_by_a_twentieth_of_the_held_out_data(classifier: Path, regressor: Path) -> None:
    for folder in (classifier, regressor):
        served = opened(PosteriorOptions(folder))
        _, (x, _) = held_out(data_of(served.card, folder), "validation")
        marked = replace(served, threshold=quantile(served.scores(x)))
        scaling = served.card.scaling("input")
        own = (x if scaling is None else scaling.undo(x)).double().numpy()
        flags = [each.out_of_distribution for each in marked.answers(own, lambda: None)]
        assert sum(map(bool, flags)) == max(1, round(0.05 * len(x)))


def test_every_answer_has_headers_against_other_pages(classifier: Path) -> None:
    app = service(classifier)
    for path in ("/health", "/nothing", "/docs"):
        headers = call(app, "GET", path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert not any(name.startswith("access-control") for name in headers)


def test_the_page_about_routes_loads_and_runs_nothing(classifier: Path) -> None:
    app = service(classifier)
    page = call(app, "GET", "/docs").body.decode()
    assert "<script" not in page
    assert "http:" not in page
    assert "https:" not in page
    assert page.count("<h2>") == 4  # three routes, and their objects
    schema = call(app, "GET", "/openapi.json").json()
    assert set(schema["paths"]) == {"/health", "/model", "/predict"}
    assert schema["paths"]["/predict"]["post"]["requestBody"]["content"].keys() == {"application/json", "text/csv"}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200),
        ("localhost", 200),
        ("[::1]:8000", 200),
        ("evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("localhost@evil.example", 400),
        ("[", 400),
        ("", 400),
    ],
)
def test_names_of_others_are_refused(classifier: Path, host: str, status: int) -> None:
    answer = call(service(classifier), "GET", "/health", headers={"host": host})
    assert answer.status == status
    assert ("error" in answer.json()) is (status != 200)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://127.0.0.1:8000"}, 200),
        ({"origin": "http://127.0.0.1:9000"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
    ],
)
def test_pages_of_others_are_refused(classifier: Path, headers: dict[str, str], status: int) -> None:
    assert call(service(classifier), "POST", "/predict", {"inputs": ROWS}, headers=headers).status == status


def test_a_token_is_asked_for_everywhere_but_health(classifier: Path) -> None:
    app = service(classifier, access=Access("192.168.1.2", token=SECRET))
    host = {"host": "192.168.1.2:8000"}
    assert call(app, "GET", "/health", headers=host).status == 200
    wrong = [{}, *({"authorization": f"{kind} {SECRET}{more}"} for kind, more in (("Basic", ""), ("Bearer", "!")))]
    for headers in wrong:
        for method, path in (("POST", "/predict"), ("GET", "/model"), ("GET", "/docs"), ("GET", "/nothing")):
            answer = call(app, method, path, headers={**host, **headers})
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
    right = {**host, "authorization": f"Bearer {SECRET}"}
    assert call(app, "POST", "/predict", {"inputs": ROWS}, headers=right).status == 200


def test_large_bodies_are_refused_before_they_are_read(classifier: Path) -> None:
    app = service(classifier, size=100)
    assert call(app, "POST", "/predict", [b"1,2\n"] * 50, CSV).status == 413  # without a length
    assert call(app, "POST", "/predict", b"1,2\n" * 50, CSV).status == 413
    assert call(app, "POST", "/predict", b"1,2\n" * 5, CSV).status == 200
    assert call(service(classifier, rows=2), "POST", "/predict", {"inputs": ROWS}).status == 413


def test_slow_bodies_are_refused(classifier: Path) -> None:
    app = service(classifier, seconds=0.2)
    began = time.perf_counter()
    assert call(app, "POST", "/predict", [b"1,", None], CSV).status == 408
    assert time.perf_counter() - began < 5
    assert call(app, "POST", "/predict", {"inputs": ROWS}).status in (200, 504)


class Slow(Model):
    """A model that computes until nobody waits, or fails."""

    input_shape = (2,)

    def __init__(self, failing: bool = False) -> None:
        self.failing, self.asked, self.ended = failing, 0, 0

    def facts(self) -> Facts:
        nothing = dict.fromkeys(("columns", "classes", "outputs", "threshold"))
        return Facts(kind="", posterior="", input_shape=[2], score="", **nothing)

    def answers(self, values: Any, ask: Callable[[], None]) -> list[Prediction]:
        if self.failing:
            raise RuntimeError(f"these inputs are secret: {values}")
        try:
            for _ in range(1000):
                self.asked += 1
                ask()
                time.sleep(0.01)
        finally:
            self.ended += 1
        return []


def test_a_computation_ends_when_nobody_waits() -> None:
    model = Slow()
    app = application(model, Access(), Limits(seconds=0.2))
    answer = call(app, "POST", "/predict", {"inputs": ROWS})
    assert answer.status == 504
    assert "fewer rows" in answer.json()["error"]
    for _ in range(100):
        time.sleep(0.01 if model.ended < 1 else 0)
    assert model.ended == 1
    assert model.asked < 1000


def test_too_many_requests_at_once() -> None:
    for limits, clients, status in (
        (Limits(seconds=0.5, client=2, requests=9), ["127.0.0.1"] * 3, 429),
        (Limits(seconds=0.5, client=9, requests=2), ["10.0.0.1", "10.0.0.2", "10.0.0.3"], 503),
    ):
        app = application(Slow(), Access(), limits)
        post = partial(called, app, "POST", "/predict", {"inputs": ROWS})
        answers = together([partial(post, client=client) for client in clients])
        assert sorted(answer.status for answer in answers) == sorted([status, 504, 504])
        assert next(answer for answer in answers if answer.status == status).headers["retry-after"] == "1"
        assert call(app, "GET", "/health").status == 200  # the places are free again


def test_failures_and_logs_hold_no_inputs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    app = application(Slow(failing=True), Access(), Limits())
    answer = call(app, "POST", "/predict", {"inputs": [[271828.0, 1.0]]})
    assert answer.status == 500
    assert call(app, "GET", "/271828").status == 404
    assert call(app, "POST", "/predict", b"271828", CSV).status == 422
    assert "RuntimeError" in caplog.text
    for text in (caplog.text, answer.body.decode()):
        assert "271828" not in text
        assert "secret" not in text


def test_many_clients_at_once_are_answered_as_python_does(classifier: Path) -> None:
    app, served = service(classifier, threads=3), opened(PosteriorOptions(classifier))
    x = torch.randn(64, 3, 2, generator=torch.Generator().manual_seed(0)) * 5 + 10
    expected = [osc.predict(served.q, part).probs.tolist() for part in x]

    async def client(number: int) -> None:
        for place in range(number, len(x), 32):
            answer = await called(app, "POST", "/predict", {"inputs": x[place].tolist()})
            assert [each["probabilities"] for each in answer.json()["predictions"]] == expected[place]

    async def clients() -> None:
        await asyncio.gather(*map(client, range(32)))

    asyncio.run(clients())


def test_rows_of_a_table_are_read_by_the_schema_of_the_run(tmp_path: Path) -> None:
    lines = [f"{n % 7},{['red', 'blue'][n % 2]},{'yes' if n % 7 > 3 else 'no'}" for n in range(120)]
    (tmp_path / "table.csv").write_text("\n".join(["size,colour,bought", *lines]))
    saved_run(tmp_path, DataOptions(data=str(tmp_path / "table.csv"), target="bought"), "mlp", None)
    app, served = service(tmp_path), opened(PosteriorOptions(tmp_path))
    rows = [{"size": 2.5, "colour": "red"}, {"size": 3, "colour": "blue"}]
    x = served.card.schema.read({"size": [2.5, 3], "colour": ["red", "blue"]}, targets=False)[0]
    expected = osc.predict(served.q, x).probs.tolist()
    for body, headers in (
        (json.dumps({"rows": rows}).encode(), JSON),
        (b"colour,size\nred,2.5\nblue,3\n", CSV),
    ):
        found = call(app, "POST", "/predict", body, headers).json()
        assert [each["probabilities"] for each in found["predictions"]] == expected
        assert found["classes"] == ["no", "yes"]
    assert call(app, "GET", "/model").json()["columns"] == [
        {"name": "size", "kind": "number", "categories": None},
        {"name": "colour", "kind": "category", "categories": ["blue", "red"]},
    ]
    rows = [{"size": 2.5, "colour": "red"}, {"size": None, "colour": "secret"}, {"size": 3, "colour": None}]
    answer = call(app, "POST", "/predict", {"rows": rows})
    found = [each["unknown_columns"] for each in answer.json()["predictions"]]
    assert found == [[], ["size", "colour"], ["colour"]]
    assert "secret" not in answer.body.decode()
    for wrong in ([{"size": 1}], [{"size": "1", "colour": "red"}], [{"size": 1, "colour": ["red"]}], [3], []):
        assert call(app, "POST", "/predict", {"rows": wrong}).status == 422
    for wrong_text in (
        b"size,colour,more\n1,red,2\n",
        b"size,size\n1,2\n",
        b"size,colour\nnan,red\n",
        b"size,colour\nlarge,red\n",
        b"size,colour\n1e60,red\n",
        b"size,colour\n",
    ):
        answer = call(app, "POST", "/predict", wrong_text, CSV)
        assert answer.status == 422
        assert "without a header" not in answer.json()["error"]
    for value in ("1e39", "-1e60", "1" + "0" * 400):
        for row in (f'{{"size": {value}, "colour": "red"}}', f'{{"size": 1, "colour": {value}}}'):
            answer = call(app, "POST", "/predict", f'{{"rows": [{row}]}}'.encode(), JSON)
            assert answer.status == 422
            assert "single precision" in answer.json()["error"]


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_inputs_whose_prediction_is_not_finite_are_refused(kind: str, request: pytest.FixtureRequest) -> None:
    app = service(request.getfixturevalue(kind))
    for value in (1e20, 1e30, 3e38):
        answer = call(app, "POST", "/predict", {"inputs": [[1.0, 2.0], [value, -value]]})
        assert answer.status in (200, 422)
    assert answer.status == 422
    assert "no finite prediction" in answer.json()["error"]


def test_a_single_network_of_real_values_marks_nothing(regressor: Path, tmp_path: Path) -> None:
    (tmp_path / MODEL).write_bytes((regressor / MODEL).read_bytes())
    app = service(tmp_path, threshold=1e-19)
    (found,) = call(app, "POST", "/predict", {"inputs": ROWS[:1]}).json()["predictions"]
    assert found["out_of_distribution"] is None
    assert found["function_standard_deviation"] is None
    facts = call(app, "GET", "/model").json()
    assert facts["threshold"] is None
    assert "no variance of its function" in facts["score"]


def test_data_outside_of_the_folder_are_read_only_if_the_user_names_them(classifier: Path, tmp_path: Path) -> None:
    card, data = opened(PosteriorOptions(classifier)).card, classifier / "data.npz"
    run, images = tmp_path / "run", tmp_path / "run" / "images"
    images.mkdir(parents=True)
    (run / "link.npz").symlink_to(data)
    (images / "0.png").symlink_to(data)
    for path in (data, run / ".." / ".." / classifier.name / "data.npz", run / "link.npz", images):
        with pytest.raises(ValueError, match=says("outside of its folder", "pass --data")):
            data_of(replace(card, data={**card.data, "data": str(path)}), run)
    assert len(data_of(card, run, str(data)).test[0])
    (run / "data.npz").write_bytes(data.read_bytes())
    assert len(data_of(replace(card, data={**card.data, "data": str(run / "data.npz")}), run).test[0])


def test_either_part_of_the_held_out_data_may_be_empty(classifier: Path) -> None:
    dataset = data_of(opened(PosteriorOptions(classifier)).card, classifier)
    nothing = (dataset.test[0][:0], dataset.test[1][:0])
    for first, other in (("test", "validation"), ("validation", "test")):
        assert held_out(dataset, first)[0] == first
        assert held_out(replace(dataset, **{first: nothing}), first)[0] == other
    with pytest.raises(ValueError, match=says("neither a validation nor a test part")):
        held_out(replace(dataset, test=nothing, validation=nothing), "test")


def test_health_paths_and_compressed_bodies(classifier: Path) -> None:
    app = service(classifier)
    assert call(app, "HEAD", "/health").status == 200
    assert call(app, "GET", "/model/").status == 404
    answer = call(app, "POST", "/predict", {"inputs": ROWS}, headers={"content-encoding": "gzip"})
    assert answer.status == 415
    assert "compressed" in answer.json()["error"]
    assert call(app, "POST", "/predict", {"inputs": ROWS}, headers={"content-encoding": "identity"}).status == 200
