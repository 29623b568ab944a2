"""Costs: exponents, limits that are kept, memory that is counted, and threads given back."""

import time

import pytest
import torch
from torch import nn

from experiments import cost
from experiments.cost import Curve, Limits
from osculate.likelihoods import Gaussian
from osculate.methods.laplace import laplace
from osculate.structures import Diag


def spend(seconds: float) -> None:
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass


def test_peak_bytes_counts_what_lives_at_once() -> None:
    def work() -> None:
        first = torch.empty(1000, dtype=torch.float64)
        second = torch.empty(500, dtype=torch.float64)
        del first
        third = torch.empty(900, dtype=torch.float64)
        del second, third

    work()
    assert 12_000 <= cost.peak_bytes(work) < 13_000


def test_exponents_are_per_seed_and_over_the_sizes_asked_for() -> None:
    curve = Curve([1, 2, 4, 8], [[1.0, 2.0], [1.0, 8.0], [2.0, 32.0], [4.0, 128.0]], [1, 4, 16, 64])
    assert curve.time_exponents(start=2) == pytest.approx((1.0, 2.0))
    assert curve.time_exponents(last=2) == pytest.approx((1.0, 2.0))
    assert curve.time_exponents()[0] < 1
    assert curve.memory_exponent() == pytest.approx((2.0,))
    assert curve.time_exponents(start=8) == curve.memory_exponent(last=1) == ()
    assert Curve().time_exponents() == ()


def test_a_sweep_stops_before_a_size_that_would_take_too_long() -> None:
    tried: list[int] = []

    def make(name: str, size: int, seed: int) -> cost.Work:
        tried.append(size)
        return lambda: (spend(1e-4 * size**2), torch.empty(size))

    found = cost.sweep(make, "a", {f"{n}²": n for n in (4, 8, 16, 32)}, [0, 1], Limits(0.05, 1.0, 2), False)["a"]
    assert found.sizes == [4, 8, 16]
    assert tried == [4, 4, 8, 8, 16, 16]
    assert [len(values) for values in found.seconds] == [2, 2, 2]
    assert found.stopped.startswith("32² would take about 0.1 s (limit 0.05 s)")


def test_a_sweep_stops_before_a_size_that_would_take_too_much_memory() -> None:
    def make(name: str, size: int, seed: int) -> cost.Work:
        return lambda: torch.empty(size, size)

    sizes = {str(n): n for n in (100, 200, 400, 800)}
    found = cost.sweep(make, "ab", sizes, [0], Limits(10.0, 0.001), False)
    assert found["a"].sizes == found["b"].sizes == [100, 200, 400]
    assert "800 would take about 2.6 MB (limit 0.001 GB)" in found["a"].stopped
    assert cost.sweep(make, "a", sizes, [0], Limits(10.0, 1.0), False)["a"].stopped == ""


def test_threads_are_given_back_also_after_an_error() -> None:
    def fail(*_: object) -> cost.Work:
        assert torch.get_num_threads() == 1
        raise ZeroDivisionError

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ZeroDivisionError):
            cost.sweep(fail, "a", {"1": 1}, [0], Limits(1.0, 1.0), False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_curvature_pass_gives_the_matrix_of_a_fit_each_time() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(6, 3)
    y = torch.randn(6, 2)
    work = cost.curvature_pass(model, Gaussian(1.0), (x, y), Diag(), "1MB")
    expected = laplace(model, Gaussian(1.0), (x, y), structure="diag", prior=1.0, refine=False).structure.dense()
    for _ in range(2):
        torch.testing.assert_close(work().dense(), expected)  # type: ignore[attr-defined]
