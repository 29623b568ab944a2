"""Bodies: numbers of the right shape, and nothing else."""

import numpy as np
import pytest

from osculate.serving.bodies import read_body
from osculate.serving.refusals import Refused

#: Bodies that are refused, with the status.
WRONG = {
    "no JSON": (422, b"{"),
    "a list": (422, b"[[1, 2]]"),
    "another key": (422, b'{"inputs": [[1, 2]], "more": 1}'),
    "a key twice": (422, b'{"inputs": [[1, 2]], "inputs": [[3, 4]]}'),
    "no rows": (422, b'{"inputs": []}'),
    "NaN": (422, b'{"inputs": [[NaN, 2]]}'),
    "Infinity": (422, b'{"inputs": [[1, -Infinity]]}'),
    "too large for a float": (422, b'{"inputs": [[1, 1e999]]}'),
    "too large for single precision": (422, b'{"inputs": [[1, 1e39]]}'),
    "a huge integer": (422, b'{"inputs": [[1, 1' + b"0" * 400 + b"]]}"),
    "digits without end": (422, b'{"inputs": [[1, 1' + b"0" * 5000 + b"]]}"),
    "a boolean": (422, b'{"inputs": [[true, 2]]}'),
    "null": (422, b'{"inputs": [[null, 2]]}'),
    "a text": (422, b'{"inputs": [["1", 2]]}'),
    "too short": (422, b'{"inputs": [[1]]}'),
    "too deep a shape": (422, b'{"inputs": [[[1], [2]]]}'),
    "an object": (422, b'{"inputs": [{"a": 1}]}'),
    "no list": (422, b'{"inputs": {"a": 1}}'),
    "nesting": (422, b'{"inputs": ' + b"[" * 100_000),
    "no UTF-8": (422, b"\xff\xfe"),
    "too many rows": (413, b'{"inputs": [[1, 2], [1, 2], [1, 2], [1, 2]]}'),
}
LINES = {
    "NaN": (422, b"1,nan\n"),
    "infinity": (422, b"1,-inf\n"),
    "a header": (422, b"a,b\n1,2\n"),
    "an underscore": (422, b"1,1_0\n"),
    "another alphabet": (422, "1,\u0661\n".encode()),
    "a long line": (422, b"1,2,3\n"),
    "an open quote": (422, b'1,"2\n'),
    "empty": (422, b""),
    "too many rows": (413, b"1,2\n" * 4),
    "a null byte": (422, b"1,\x00\n"),
    "a field without end": (422, b"1," + b"1" * 200_000),
}


@pytest.mark.parametrize("name", WRONG)
def test_json_that_is_refused(name: str) -> None:
    status, body = WRONG[name]
    with pytest.raises(Refused) as caught:
        read_body("application/json; charset=utf-8", body, (2,), 3)
    assert caught.value.status == status


@pytest.mark.parametrize("name", LINES)
def test_csv_that_is_refused(name: str) -> None:
    status, body = LINES[name]
    with pytest.raises(Refused) as caught:
        read_body("text/csv", body, (2,), 3)
    assert caught.value.status == status


def test_other_kinds_are_refused() -> None:
    for kind in ("", "text/plain", "multipart/form-data"):
        with pytest.raises(Refused) as caught:
            read_body(kind, b'{"inputs": [[1, 2]]}', (2,), 3)
        assert caught.value.status == 415


def test_sentences_hold_no_values() -> None:
    for kind, bodies in (("application/json", WRONG), ("text/csv", LINES)):
        for _, body in bodies.values():
            with pytest.raises(Refused) as caught:
                read_body(kind, body.replace(b"2", b"271828"), (2,), 3)
            assert "271828" not in caught.value.sentence


def test_numbers_keep_their_digits_and_their_order() -> None:
    x = np.random.default_rng(0).normal(size=(3, 1, 2, 2))
    as_json = ('{"inputs": ' + str(x.tolist()) + "}").encode()
    as_csv = "\r\n".join(",".join(map(repr, row)) for row in x.reshape(3, 4).tolist()).encode()
    assert np.array_equal(read_body("application/json", as_json, (1, 2, 2), 3), x)
    assert np.array_equal(read_body("text/csv; header=absent", b"\xef\xbb\xbf" + as_csv, (1, 2, 2), 3), x)
