"""Every likelihood with every shape of outputs that it takes; sizes differ, so that a swapped axis shows."""

from dataclasses import dataclass

import torch
from torch import Tensor

from osculate.likelihoods import (
    Bernoulli,
    Categorical,
    ContinuousBernoulli,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    Poisson,
    StudentT,
)

DATA = 5


@dataclass(frozen=True)
class Case:
    """A likelihood with a ``distribution``, the shape of one datum's outputs, and their layout as positions of
    interacting outputs.
    """

    likelihood: Likelihood
    shape: tuple[int, ...]
    layout: tuple[int, int]

    def outputs(self, count: int = DATA, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(count, *self.shape, generator=generator, dtype=torch.double) * 1.5

    def targets(self, f: Tensor, seed: int = 0) -> Tensor:
        """Drawn from the likelihood; where it ignores an index, some are that; where grey ones are meant, they are."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            y = self.likelihood.distribution(f).sample()
        ignored = getattr(self.likelihood, "ignore_index", None)
        if ignored is not None:
            y.reshape(-1)[::3] = ignored
        if getattr(self.likelihood, "grey", False):
            y = 0.7 * y + 0.1
        return y

    def pair(self) -> tuple[Tensor, Tensor]:
        f = self.outputs()
        return f, self.targets(f)

    def covariance(self, size: float = 1.0, seed: int = 1) -> Tensor:
        """Random covariances (N, T, E, E) of the function values."""
        generator = torch.Generator().manual_seed(seed)
        t, e = self.layout
        root = torch.randn(DATA, t, e, e, generator=generator, dtype=torch.double) + torch.eye(e, dtype=torch.double)
        return size * root @ root.mT / (e + 1)


SCALES = torch.tensor([0.3, 1.0, 2.0, 0.5], dtype=torch.double)

CASES = {
    "categorical": Case(Categorical(), (4,), (1, 4)),
    "categorical, tokens": Case(Categorical(), (3, 4), (3, 4)),
    "categorical, pixels": Case(Categorical(class_axis=1), (4, 2, 3), (6, 4)),
    "categorical, ignored pixels": Case(Categorical(class_axis=1, ignore_index=-100), (4, 2, 3), (6, 4)),
    "categorical, padding is class 0": Case(Categorical(class_axis=-2, ignore_index=0), (4, 2), (2, 4)),
    "bernoulli": Case(Bernoulli(), (1,), (1, 1)),
    "bernoulli, labels": Case(Bernoulli(), (4,), (4, 1)),
    "bernoulli, mask": Case(Bernoulli(), (1, 2, 3), (6, 1)),
    "bernoulli, grey image": Case(Bernoulli(grey=True), (1, 2, 3), (6, 1)),
    "continuous bernoulli": Case(ContinuousBernoulli(), (3,), (3, 1)),
    "continuous bernoulli, image": Case(ContinuousBernoulli(), (1, 2, 3), (6, 1)),
    "gaussian": Case(Gaussian(0.7), (4,), (4, 1)),
    "gaussian, scales": Case(Gaussian(SCALES), (4,), (4, 1)),
    "gaussian, image": Case(Gaussian(0.7), (2, 1, 3), (6, 1)),
    "gaussian, image, scales": Case(Gaussian(SCALES.reshape(2, 1, 2)), (2, 1, 2), (4, 1)),
    "heteroscedastic": Case(HeteroscedasticGaussian(), (6,), (3, 2)),
    "heteroscedastic, sequence": Case(HeteroscedasticGaussian(), (3, 4), (6, 2)),
    "heteroscedastic, image": Case(HeteroscedasticGaussian(class_axis=1), (4, 1, 3), (6, 2)),
    "poisson": Case(Poisson(), (3,), (3, 1)),
    "poisson, grid": Case(Poisson(), (2, 3), (6, 1)),
    "student t": Case(StudentT(4.0, 0.7), (3,), (3, 1)),
    "student t, grid": Case(StudentT(3.0, 2.0), (2, 3), (6, 1)),
}

#: Likelihoods whose curvature is the expected Hessian, because the observed one is indefinite.
EXPECTED = (HeteroscedasticGaussian, StudentT)
