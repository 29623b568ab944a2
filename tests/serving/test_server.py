"""A server in processes of its own: many clients, hostile clients, hostile runs."""

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("fastapi")

import osculate as osc
from osculate.cli import main
from osculate.cli.checkpoint import MODEL, read_model, save_model
from osculate.cli.folder import POSTERIOR
from osculate.cli.predict import PosteriorOptions
from osculate.cli.served import maker, opened
from osculate.serving.settings import TOKEN, Access, Limits
from tests.serving.calls import call
from tests.serving.processes import Server, rest, started
from tests.serving.runs import own_data, saved_run
from tests.serving.test_settings import SECRET

ROWS = [[9.5, 10.25], [14.0, 3.5]]


@pytest.fixture(scope="module")
def server(classifier: Path) -> Iterator[Server]:
    with started("serve", classifier, "--workers", "2", "--max-seconds", "2", "--max-bytes", "100000") as found:
        yield found


def assert_clients_agree(server: Server, folder: Path, requests: int, clients: int = 32) -> None:
    """Compare the answers that clients at the same time get with those of Python."""
    q = opened(PosteriorOptions(folder)).q
    x = torch.randn(requests, 2, 2, generator=torch.Generator().manual_seed(0)) * 5 + 10
    expected = [osc.predict(q, part).probs.tolist() for part in x[:500]]

    def client(number: int) -> list[tuple[int, int, Any]]:
        connection = server.connected()
        return [
            (place, *server.post(x[place % 500].tolist(), connection)) for place in range(number, requests, clients)
        ]

    with ThreadPoolExecutor(clients) as pool:
        answers = [answer for found in pool.map(client, range(clients)) for answer in found]
    assert len(answers) == requests
    for place, status, content in answers:
        assert status == 200
        assert [each["probabilities"] for each in content["predictions"]] == expected[place % 500]


@pytest.mark.release
def test_500_requests_of_32_clients(server: Server, classifier: Path) -> None:
    assert_clients_agree(server, classifier, 500)


@pytest.mark.release
def test_5000_requests_of_32_clients(server: Server, classifier: Path) -> None:
    assert_clients_agree(server, classifier, 5000)


@pytest.mark.slow
def test_slow_and_broken_clients_are_dropped_and_the_server_goes_on(server: Server) -> None:
    address = ("127.0.0.1", server.port)
    slow = [socket.create_connection(address, timeout=30) for _ in range(20)]
    for number, sock in enumerate(slow):  # headers without an end, bodies without an end, nothing at all
        head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n"
        sock.sendall([head, head + b"Content-Length: 100\r\n\r\n1,", b""][number % 3])
    assert server.post(ROWS)[0] == 200
    assert b"400 Bad Request" in server.raw(b"\x16\x03\x01 nothing of HTTP\r\n\r\n")
    assert b"400 Bad Request" in server.raw(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n")
    large = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\nContent-Length: 300000\r\n\r\n"
    assert b"413 " in server.raw(large + b"1,2\n" * 75_000)
    lengths = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n1,2\n"
    assert b"400 Bad Request" in server.raw(lengths)
    ends = [rest(sock) for sock in slow]
    for sock in slow:
        sock.close()
    assert all(b"408 " in end if number % 3 == 1 else end == b"" for number, end in enumerate(ends))
    assert server.post(ROWS)[0] == 200
    assert server.process.poll() is None


@pytest.mark.slow
def test_a_client_that_sends_a_byte_now_and_then_is_dropped(server: Server) -> None:
    connection = server.connected()
    assert server.post(ROWS, connection)[0] == 200
    began = time.monotonic()

    def drip() -> None:
        for byte in b"GET /health HTTP/1.1\r\n" + b"a" * 100:
            connection.sock.sendall(bytes([byte]))
            time.sleep(0.5)

    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        drip()
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_the_log_holds_no_inputs(server: Server) -> None:
    assert server.post([[271828.5, 1.0]])[0] == 200
    connection = server.connected()
    connection.request("GET", "/predict?x=271828")
    assert connection.getresponse().status == 405
    text = server.log.read_text()
    assert "POST /predict 200" in text
    assert "271828" not in text


@pytest.mark.slow
def test_a_token_from_the_environment_is_neither_shown_nor_logged(classifier: Path) -> None:
    with started("serve", classifier, "--threshold", "0.5", **{TOKEN: SECRET}) as server:
        assert server.post(ROWS)[0] == 401
        connection = server.connected()
        connection.request("GET", "/model", headers={"Authorization": f"Bearer {SECRET}"})
        assert connection.getresponse().status == 200
    assert SECRET not in server.log.read_text()


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The sentence with which the command ends."""
    capsys.readouterr()
    assert main(["serve", *map(str, words), "--no-progress"]) == 2
    said = capsys.readouterr().err
    assert said.count("error:") == 1
    return said


def test_other_machines_are_not_served_without_a_token(
    classifier: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    assert "a token is needed" in refused(capsys, classifier, "--host", "0.0.0.0")


def test_a_card_that_names_code_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_run(tmp_path, own_data(tmp_path, classes=True), "mlp", None)
    tensors, card = read_model(tmp_path / MODEL)
    assert card is not None
    network = card.network()
    save_model(tmp_path / MODEL, network, replace(card, model="tests.serving.runs:factory", options={}))
    monkeypatch.chdir(tmp_path)
    assert "pass --model" in refused(capsys, tmp_path)
    (tmp_path / "options.yaml").write_text(f"posterior: {tmp_path}\nmodel: tests.serving.runs:factory\n")
    assert "a file must not run code" in refused(capsys, "--config", tmp_path / "options.yaml")
    assert not (tmp_path / "has_run").exists()


@pytest.mark.parametrize("name", [MODEL, POSTERIOR])
def test_links_out_of_the_folder_are_not_followed(
    name: str, classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for each in (MODEL, POSTERIOR):
        if each == name:
            (folder / each).symlink_to(classifier / each)
        else:
            (folder / each).write_bytes((classifier / each).read_bytes())
    assert "a link out of the folder" in refused(capsys, folder)
    assert "a link out of the folder" in refused(capsys, folder / name)


def test_data_that_are_gone_leave_no_flag_and_damage_is_a_sentence(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = bytearray((classifier / POSTERIOR).read_bytes())
    damaged[-5] ^= 1
    (tmp_path / POSTERIOR).write_bytes(damaged)
    (tmp_path / MODEL).write_bytes((classifier / MODEL).read_bytes())
    assert "checksum" in refused(capsys, tmp_path)


def said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object
) -> tuple[str, str, float | None]:
    """What the command prints and warns of before it serves, and its threshold."""
    found = []

    def serve(make: Any, access: Access, limits: Limits, workers: int, ready: Callable[[str], None]) -> None:
        found.append(call(make(access, limits), "GET", "/model").json()["threshold"])
        ready(access.url)

    monkeypatch.setattr("osculate.serving.server.serve", serve)
    capsys.readouterr()
    assert main(["serve", *map(str, words), "--no-progress"]) == 0
    return *capsys.readouterr(), found[0]


def test_the_threshold_is_printed_in_full_for_the_next_start(
    classifier: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _, threshold = said(capsys, monkeypatch, classifier)
    assert f"entropy above {threshold}, as for 5 % of" in out
    assert said(capsys, monkeypatch, classifier, "--threshold", threshold)[2] == threshold


def test_data_outside_of_the_run_are_read_for_the_threshold_if_they_are_named(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (MODEL, POSTERIOR):
        (tmp_path / name).write_bytes((classifier / name).read_bytes())
    _, warned, threshold = said(capsys, monkeypatch, tmp_path)
    assert "data outside of its folder" in warned
    assert threshold is None
    named = said(capsys, monkeypatch, tmp_path, "--data", classifier / "data.npz")
    assert named[2] == said(capsys, monkeypatch, classifier)[2]


def test_a_regression_without_a_posterior_says_that_it_marks_nothing(
    regressor: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / MODEL).write_bytes((regressor / MODEL).read_bytes())
    out, _, threshold = said(capsys, monkeypatch, tmp_path, "--threshold", "1e-19")
    assert "nothing is marked as out of distribution" in out
    assert threshold is None


def test_one_worker_serves_the_run_that_was_read(classifier: Path, tmp_path: Path) -> None:
    for name in (MODEL, POSTERIOR):
        (tmp_path / name).write_bytes((classifier / name).read_bytes())
    served = opened(PosteriorOptions(tmp_path))
    (tmp_path / MODEL).unlink()
    assert call(maker(served, workers=1)(Access(), Limits()), "GET", "/model").status == 200
    with pytest.raises(FileNotFoundError):
        maker(served, workers=2)(Access(), Limits())
