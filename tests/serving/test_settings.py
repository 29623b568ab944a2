"""Addresses, names and tokens."""

from pathlib import Path

import pytest

from osculate.serving.settings import TOKEN, Access, Limits, is_loopback, read_token
from tests.errors import says

SECRET = "correct horse battery"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "example.org", "::"])
def test_other_machines_need_a_token(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ValueError, match=says("a token is needed", TOKEN)):
        Access(host, names=("example.org",))


def test_a_token_is_long_and_not_shown() -> None:
    with pytest.raises(ValueError, match=says("at least 16 characters")) as caught:
        Access(token="swordfish")
    assert "swordfish" not in str(caught.value)
    assert SECRET not in repr(Access(token=SECRET))


def test_a_server_for_every_network_needs_names() -> None:
    with pytest.raises(ValueError, match=says("--allowed-hosts")):
        Access("0.0.0.0", token=SECRET)
    access = Access("0.0.0.0", names=("Example.org",), token=SECRET)
    assert access.knows("example.ORG")
    assert not access.knows("example.com")


def test_tokens_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    assert read_token(None) is None
    monkeypatch.setenv(TOKEN, SECRET)
    (tmp_path / "token").write_text("another secret\n")
    assert read_token(None) == SECRET
    assert read_token(tmp_path / "token") == "another secret"
    with pytest.raises(FileNotFoundError, match=says("--token-file")):
        read_token(tmp_path / "none")


def test_limits_and_ports_are_positive() -> None:
    with pytest.raises(ValueError, match="rows"):
        Limits(rows=0)
    with pytest.raises(ValueError, match="seconds"):
        Limits(seconds=float("inf"))
    with pytest.raises(ValueError, match="65535"):
        Access(port=70_000)


def test_the_address_is_one_that_clients_can_type() -> None:
    assert Access("0.0.0.0", names=("example.org",), token=SECRET).url == "http://example.org:8000/"
    assert Access("::1", port=1).url == "http://[::1]:1/"
