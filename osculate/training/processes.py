"""Training by several processes, each with its own data: Lightning's DDP on the process group that there is."""

import os
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments import ClusterEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from osculate.distributed import Group
from osculate.inputs import Inputs, call, moved, take
from osculate.methods._base import Method
from osculate.parameters import undisturbed

#: A batch and the number of its data, which is 0 for one that is repeated; or the error that reading one has raised.
Piece = tuple[Inputs, Tensor, int] | Exception


class Started(ClusterEnvironment):
    """The processes that have started already, in a process group of ``torch.distributed``."""

    creates_processes_externally = True
    main_address = "127.0.0.1"  # of the group, which exists
    main_port = 0

    @staticmethod
    def detect() -> bool:
        """Return False: it is named, and not detected."""
        return False

    def world_size(self) -> int:
        """Number of processes."""
        return dist.get_world_size()

    def set_world_size(self, size: int) -> None:
        """Do nothing."""

    def global_rank(self) -> int:
        """Number of this process."""
        return dist.get_rank()

    def set_global_rank(self, rank: int) -> None:
        """Do nothing."""

    def local_rank(self) -> int:
        """Number of this process on its machine."""
        return int(os.environ.get("LOCAL_RANK", dist.get_rank()))

    def node_rank(self) -> int:
        """Number of this machine."""
        return int(os.environ.get("GROUP_RANK", "0"))

    @property
    def local_size(self) -> int:
        """Number of processes on this machine."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))


class WeightedDDP(DDPStrategy):
    """Lightning's DDP, with gradients that are averaged over the data and not over the processes.

    Args:
        method: The method in training, whose ``share`` gives the weight of this process in a step.
        environment: The processes.
        leaves_out: True if some parameters take no part in the forward pass.
    """

    def __init__(self, method: Method, environment: Started, leaves_out: bool) -> None:
        # without a broadcast of buffers: those of methods are the same in all processes by their own reductions
        super().__init__(cluster_environment=environment, find_unused_parameters=leaves_out, broadcast_buffers=False)
        self._method = method

    def configure_ddp(self) -> None:
        """Wrap the module, and set the weights of its gradients."""
        super().configure_ddp()
        assert isinstance(self.model, DistributedDataParallel)
        self.model.register_comm_hook(self._method, weighted_sum)


def weighted_sum(method: Method, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Σ_r (B_r/B) g_r over processes r with B_r of the B data of a step; the hook of DDP for some gradients."""
    gradients = bucket.buffer().mul_(method.share.own / method.share.total)
    done = dist.all_reduce(gradients, async_op=True)
    assert done is not None
    return done.get_future().then(lambda future: future.value()[0])


def leaves_out_parameters(method: Method, x: Inputs) -> bool:
    """True if trained parameters of a network take no part in its forward pass, as far as one datum shows."""
    model = method.model
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with undisturbed(model):
        f = call(model.eval(), moved(take(x, slice(1)), trained[0].device))
    gradients = torch.autograd.grad(f.sum(), trained, allow_unused=True)
    return any(gradient is None for gradient in gradients)


class Together:
    """The batches of a pass, as many in each process: one that has fewer repeats its last batch, which counts nothing.

    Args:
        epochs: The batches of this process; has a ``num_batches``, the largest number of a process.
    """

    def __init__(self, epochs: Any) -> None:
        self._epochs = epochs

    def __len__(self) -> int:
        return self._epochs.num_batches

    def __iter__(self) -> Iterator[Piece]:
        number, last = 0, None
        try:
            for number, last in enumerate(self._epochs, 1):  # noqa: B007
                yield *last, len(last[1])
        except Exception as error:  # raised in the step, in which the others learn of it
            yield error
            return
        assert last is not None
        for _ in range(number, len(self)):
            yield *last, 0


def average_statistics(module: nn.Module, processes: Group) -> None:
    """Replace the running statistics of normalisation layers by their averages over all processes."""
    buffers = [
        buffer
        for layer in module.modules()
        if isinstance(layer, nn.modules.batchnorm._NormBase)
        for buffer in layer.buffers(recurse=False)
        if buffer.is_floating_point()
    ]
    if buffers:
        processes.sum_(buffers)
        torch._foreach_div_(buffers, float(processes.size))
