"""Fast white noise: the distribution, its independence, and its seed."""

import torch

from osculate.linalg import white
from osculate.linalg.white import TABLE_FROM, WIDTH, points


def test_many_numbers_are_normal_and_independent() -> None:
    torch.manual_seed(0)
    z = white((40, 2**15), torch.float32, "cpu").double().flatten()
    n = z.numel()
    assert abs(float(z.mean())) < 4 / n**0.5
    assert abs(float(z.square().mean()) - 1) < 4 * (2 / n) ** 0.5
    assert abs(float(z.pow(4).mean()) - 3) < 4 * (96 / n) ** 0.5
    uniform = torch.special.ndtr(z).sort().values
    assert float((uniform - torch.arange(n) / n).abs().max()) < 2 / n**0.5  # Kolmogorov, p < 1e-3
    for lag in (1, 2, 3, 4, 5, 7, 1000):
        for power in (1, 2):
            one, other = (part.pow(power) - (power - 1) for part in (z[lag:], z[:-lag]))
            assert abs(float((one * other).mean())) < 5 * power / n**0.5


def test_the_table_is_white_and_symmetric() -> None:
    table = points().double()
    covariance = table.T @ table / len(table)
    torch.testing.assert_close(covariance, torch.eye(WIDTH, dtype=torch.double), atol=1e-6, rtol=0)
    torch.testing.assert_close(table.mean(0), torch.zeros(WIDTH, dtype=torch.double))
    torch.testing.assert_close(table.pow(4).mean(0), torch.full((WIDTH,), 3.0, dtype=torch.double), atol=0.01, rtol=0)
    assert len(table.unique(dim=0)) == len(table)


def test_the_seed_decides_and_other_shapes_and_types_are_those_of_torch() -> None:
    draws = []
    for _ in range(2):
        torch.manual_seed(3)
        draws.append(white((TABLE_FROM + 1,), torch.float32, "cpu"))
    assert torch.equal(*draws)
    assert draws[0].shape == (TABLE_FROM + 1,)
    for shape, dtype in (((3, 5), torch.float32), ((TABLE_FROM,), torch.float64)):
        torch.manual_seed(3)
        expected = torch.randn(*shape, dtype=dtype)
        torch.manual_seed(3)
        assert torch.equal(white(shape, dtype, "cpu"), expected)


def test_draws_can_take_the_room_of_earlier_ones() -> None:
    torch.manual_seed(0)
    fresh = white((70_003,), torch.float32, "cpu")
    room = white((70_003,), torch.float32, "cpu")
    torch.manual_seed(0)
    again = white((70_003,), torch.float32, "cpu", room)
    assert torch.equal(again, fresh)
    assert again.data_ptr() == room.data_ptr()
