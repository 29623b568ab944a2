"""A small network that shows an image, in double precision, and the dense truth about it."""

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.reference import jacobian
from osculate.inverse import FilterPrior, LinearisedImage, LinearOperator
from osculate.networks import SkipUNet
from osculate.parameters import Network


def small(
    shape: tuple[int, int], width: int = 3, dtype: torch.dtype = torch.double
) -> tuple[LinearisedImage, FilterPrior]:
    """A U-Net at random weights, linearised, with a prior of different variances and length-scales."""
    torch.manual_seed(0)
    network = SkipUNet(width=width, skipped=2).to(dtype).eval()
    prior = FilterPrior.of(network)
    count = len(prior.blocks)
    prior = prior.replace(0.05 + 0.3 * torch.rand(count).double(), 0.3 + torch.rand(count).double())
    return LinearisedImage(network, torch.rand(shape, dtype=dtype), prior.space), prior


def dense_jacobian(linearised: LinearisedImage) -> Float[Tensor, "D P"]:
    """J by the reference."""
    network: Network = linearised._network
    full = jacobian(network.module.requires_grad_(True), linearised._input)
    names = [name for name, _ in network.module.named_parameters()]
    sizes = {name: p.numel() for name, p in network.module.named_parameters()}
    parts = dict(zip(names, full.reshape(-1, full.shape[-1]).split([sizes[name] for name in names], -1), strict=True))
    network.module.requires_grad_(False)
    return torch.cat([parts[name] for name in network.space.names], -1)


def dense_prior(prior: FilterPrior) -> Float[Tensor, "P P"]:
    """Σ, entry by entry."""
    size = prior.space.size
    sigma = torch.zeros(size, size, dtype=torch.double)
    offsets = dict(zip(prior.space.names, prior.space.offsets(), strict=True))
    sizes = dict(zip(prior.space.names, prior.space.sizes, strict=True))
    for block, v, scale in zip(prior.blocks, prior.variance, prior.lengthscale, strict=True):
        rows, columns = block.kernel
        for name in block.parameters:
            for start in range(offsets[name], offsets[name] + sizes[name], rows * columns):
                for a in range(rows * columns):
                    for b in range(rows * columns):
                        across, up = a % columns - b % columns, a // columns - b // columns
                        distance = (across**2 + up**2) ** 0.5
                        sigma[start + a, start + b] = v * torch.exp(-distance / scale)
    return sigma


def dense_data_covariance(linearised: LinearisedImage, prior: FilterPrior, operator: LinearOperator) -> Tensor:
    """A J Σ Jᵀ Aᵀ."""
    rows = operator.matrix() @ dense_jacobian(linearised).double()
    return rows @ dense_prior(prior) @ rows.T
