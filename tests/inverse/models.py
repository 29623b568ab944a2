"""A small network that shows an image, in double precision, and the dense truth about it."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.reference import jacobian
from osculate.inverse import FittedImage, LinearisedImage, LinearOperator
from osculate.networks import SkipUNet
from osculate.posteriors import Gaussian
from osculate.priors import Filters, filters_of

SIGMA = 0.1


def small(
    operator: LinearOperator, width: int = 3, dtype: torch.dtype = torch.double, rank: int = 800, noise: float = SIGMA
) -> LinearisedImage:
    """A U-Net at random weights, measured with noise, with a prior of different precisions and length-scales."""
    torch.manual_seed(0)
    network = SkipUNet(width=width, skipped=2).to(dtype).eval()
    z = torch.rand(operator.image_shape, dtype=dtype)
    with torch.no_grad():
        image = network(z[None, None])[0, 0]
    count = 8
    prior = Filters(1 / (0.05 + 0.3 * torch.rand(count).double()), 0.3 + torch.rand(count).double())
    clean = operator(image + 0.1 * torch.rand(operator.image_shape, dtype=dtype))
    data = clean + noise * torch.randn(clean.shape, dtype=dtype)
    fitted = FittedImage(network, z, image, (), (), 1, 0.3)
    return LinearisedImage(operator, data, fitted, noise, prior, rank)


def prior_of(image: LinearisedImage) -> Filters:
    """The prior, for the filters of the network."""
    prior = image.q.prior
    assert isinstance(prior, Filters)
    return prior


def dense_jacobian(image: LinearisedImage) -> Float[Tensor, "D P"]:
    """J of the filters by the reference."""
    network = image.fitted.network
    full = jacobian(network, image.fitted.input[None, None])
    sizes = [p.numel() for p in network.parameters()]
    names = [name for name, _ in network.named_parameters()]
    parts = dict(zip(names, full.reshape(-1, full.shape[-1]).split(sizes, -1), strict=True))
    return torch.cat([parts[name] for name in names if name in filters_of(network)], -1)


def dense_prior(prior: Filters) -> Float[Tensor, "P P"]:
    """Σ, entry by entry."""
    space = prior.space
    assert space is not None
    sigma = torch.zeros(space.size, space.size, dtype=torch.double)
    offsets, sizes = (dict(zip(space.names, each, strict=True)) for each in (space.offsets(), space.sizes))
    for block, delta, scale in zip(prior.blocks, prior.precision, prior.lengthscale, strict=True):
        rows, columns = block.kernel
        for name in block.parameters:
            for start in range(offsets[name], offsets[name] + sizes[name], rows * columns):
                for a in range(rows * columns):
                    for b in range(rows * columns):
                        across, up = a % columns - b % columns, a // columns - b // columns
                        distance = (across**2 + up**2) ** 0.5
                        sigma[start + a, start + b] = torch.exp(-distance / scale) / delta
    return sigma


def dense_data_covariance(image: LinearisedImage) -> Float[Tensor, "M M"]:
    """A J Σ Jᵀ Aᵀ + σ² I."""
    rows = image.operator.matrix() @ dense_jacobian(image).double()
    return rows @ dense_prior(prior_of(image)) @ rows.T + SIGMA**2 * torch.eye(len(rows), dtype=torch.double)


def dense_posterior(image: LinearisedImage) -> Float[Tensor, "D D"]:
    """From the precision of the weights, not from the covariance of the data."""
    rows = image.operator.matrix() @ dense_jacobian(image)
    precision = torch.linalg.inv(dense_prior(prior_of(image))) + rows.T @ rows / SIGMA**2
    jacobian = dense_jacobian(image)
    return jacobian @ torch.linalg.inv(precision) @ jacobian.T


def with_prior(image: LinearisedImage, precision: Tensor, lengthscale: Tensor) -> Gaussian:
    """The posterior over the filters with another prior."""
    return image.q.replace(prior=prior_of(image).replace(precision, lengthscale))


def again(image: LinearisedImage, **changes: object) -> LinearisedImage:
    """The same image with other settings."""
    return replace(image, **changes)  # type: ignore[arg-type]
