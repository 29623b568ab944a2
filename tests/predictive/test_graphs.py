"""Graphs after their simplification: the same numbers with fewer operations."""

import torch
from torch import Tensor

from osculate.predictive.tracing import traced
from tests.laws import assert_close


def operations(function, x: Tensor) -> list[str]:
    """The operations of a graph, which has the numbers of its function for any number of inputs."""
    graph = traced(function, x)
    for size in (1, 2, 5):
        some = torch.randn(size, *x.shape[1:])
        assert_close(graph(some), function(some), 1e-6)
    names = [str(node.target) for node in graph.graph.nodes if node.op in ("call_function", "call_method")]
    return [name.removeprefix("aten.").removesuffix(".default") for name in names]


def test_a_chain_of_shapes_is_its_last_shape() -> None:
    x = torch.randn(3, 4)
    assert operations(lambda x: x.unsqueeze(1).transpose(1, 2).squeeze(2).relu(), x) == ["relu"]
    assert operations(lambda x: x.view(-1, 2, 2).unsqueeze(0).squeeze(0).relu(), x) == ["reshape", "relu"]
    assert operations(lambda x: x.unsqueeze(1).permute(1, 0, 2)[0].expand(-1, 4) + 1, x) == ["add.Tensor"]


def test_what_moves_or_repeats_entries_stays() -> None:
    square = torch.randn(2, 3, 3)
    assert "transpose.int" in operations(lambda x: x.transpose(-1, -2).unsqueeze(0).relu(), square)
    assert "permute" in operations(lambda x: x.permute(0, 2, 1).unsqueeze(1).relu(), square)
    assert "expand" in operations(lambda x: x.unsqueeze(1).expand(-1, 2, 3, 3).relu(), square)
    assert "select.int" in operations(lambda x: x[:, 0].unsqueeze(1).relu(), square)


def test_a_tensor_that_is_written_into_keeps_its_views() -> None:
    def function(x: Tensor) -> Tensor:
        total = x + 1
        total.unsqueeze(1).squeeze(1).mul_(2)
        return total.unsqueeze(1).squeeze(1) + 1

    found = operations(function, torch.randn(3, 4))
    # the view that is written into stays, and only the one after it becomes a shape
    assert found[1:] == ["unsqueeze", "squeeze.dim", "mul_.Tensor", "unsqueeze", "reshape", "add.Tensor"]
