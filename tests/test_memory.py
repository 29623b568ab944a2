"""Free memory within the limits of containers, and chunks."""

from pathlib import Path

import pytest
import torch

from benchmarks.resident import STATUS, rises
from osculate import memory
from tests.errors import says

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "names", [("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")]
)
def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple) -> None:
    outside = memory.free(CPU)
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    (tmp_path / "memory").mkdir()
    (tmp_path / names[0]).write_text("5000000\n")
    (tmp_path / names[1]).write_text("2000000\n")
    assert memory.free(CPU) == 3_000_000
    (tmp_path / names[0]).write_text("max\n")
    assert memory.free(CPU) > outside / 2


def test_the_limit_of_the_process_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = memory.free(CPU)
    monkeypatch.setattr(memory, "PROCESS", tmp_path)
    (tmp_path / "limits").write_text("Max cpu time  1  2  seconds\nMax address space         9000000  9000000  bytes\n")
    (tmp_path / "statm").write_text("10 5 3 1 0 2 0\n")
    assert memory.free(CPU) == 9_000_000 - 10 * memory.PAGE
    with pytest.raises(ValueError, match=says("the matrices take 1.0 GB", "9.0 MB are free", "Take fewer.")):
        memory.require(10**9, CPU, "the matrices", "Take fewer.")
    (tmp_path / "limits").write_text("Max address space  unlimited  unlimited  bytes\n")
    assert memory.free(CPU) > outside / 2


@pytest.mark.parametrize(
    ("device", "free", "expected"), [("cpu", 8, 0.25), ("cpu", 0.4, 0.1), ("cuda", 80, 8), ("cuda", 6, 3)]
)
def test_a_default_is_a_share_of_what_is_free(
    monkeypatch: pytest.MonkeyPatch, device: str, free: float, expected: float
) -> None:
    monkeypatch.setattr(memory, "_lately_free", lambda *_: free * 2**30)
    assert memory.budget(None, torch.device(device)) == pytest.approx(expected * 2**30)


def test_chunks_are_even() -> None:
    for size in range(30):
        for largest in (1, 4, 7):
            parts = memory.even_parts(size, largest)
            assert [i for part in parts for i in range(size)[part]] == list(range(size))
            lengths = [part.stop - part.start for part in parts]
            assert not lengths or max(lengths) <= largest
            assert not lengths or max(lengths) - min(lengths) <= largest // 2 + 1


@pytest.mark.release
@pytest.mark.skipif(not STATUS.exists(), reason="the system does not tell the memory of a process")
@pytest.mark.parametrize("network", ["mlp", "lenet"])
def test_a_process_stays_within_its_budget(network: str) -> None:
    """Fits and predictions of one batch of 500, results and freed memory that the allocator keeps included."""
    assert max(_within_budget(rises(network, "50MB", 500))) < 50e6
    assert max(_within_budget(rises(network, "1GB", 500))) > 50e6


def _within_budget(found: dict[str, int]) -> list[int]:
    """All but the refinement, which holds the data and vectors of the size of the parameters besides."""
    return [size for work, size in found.items() if not work.endswith("refine")]
