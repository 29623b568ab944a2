"""The variance of function values: exact, or estimated from random vectors for very many outputs."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import require_inputs
from osculate.curvature.linearisation import Linearisation
from osculate.curvature.products import portions
from osculate.inputs import Inputs, count, from_arrays, moved, take
from osculate.linalg import eigh
from osculate.memory import budget
from osculate.posteriors import Gaussian, Mixture, Posterior, as_gaussian, as_posterior
from osculate.posteriors.linearised import (
    all_outputs,
    deviations,
    mean_function,
    moments,
    require_room,
    single_outputs,
)
from osculate.predictive.sampled import network_at_mode
from osculate.randomness import drawn_on
from osculate.registry import choose


def functional_variance(
    q: Any,
    x: Any,
    diagonal: bool = False,
    memory: str | int | None = None,
    *,
    via: str = "columns",
    samples: int = 100,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""The variance of the linearised function values.

    .. math:: \operatorname{Cov}[f(x_n)] = J(x_n) \Lambda^{-1} J(x_n)^\top

    An array of N × C × P numbers is never built: the factors of each layer are contracted with the posterior, in chunks
    of data and outputs. If a column for each output costs too much, a map of variances can be estimated from S random
    vectors, without bias:

    * "samples": the mean of the squares of J(θ_s − θ*), θ_s drawn from the posterior. Every entry has a relative
      standard error of √(2/S): 14 % with 100.
    * "sketch": half of the vectors are test vectors Ω in output space, and K̂ = KΩ (ΩᵀKΩ)⁻¹ ΩᵀK ⪯ K, the Nyström
      approximation of each datum's covariance K, is taken exactly; the others estimate the rest, as the mean of the
      squares of what Ω leaves undetermined of J(θ_s − θ*). Its error is √(4/S) of the variance that K̂ has not: none
      where the rank of K is at most S/2, and more than that of "samples" where the eigenvalues of K are alike.
      [persson2022; baston2022]

    Of a mixture of Gaussians, the mean of the members' covariances and the covariance of their mean functions.

    Args:
        q: A Gaussian posterior, a mixture of them, or what ``osc.train`` returned.
        x: Inputs (N, …).
        diagonal: Only the variance of each output.
        memory: Bytes that the call may take, or a text such as "2GB"; by default about 256 MiB or a quarter of the
            free memory, on a GPU 8 GiB or half of it.
        via: "columns" (exact), "samples" or "sketch".
        samples: S, for the last two; the members of a mixture share them, with two at least.
        generator: Source of random numbers.

    Returns:
        (N, C, C) with the outputs flattened to C, or a variance map of the shape of the outputs, (N, *C), where
        ``diagonal``.

    Raises:
        TypeError: the posterior has no linearised function (a point, samples).
        ValueError: empty or non-finite inputs; covariances that do not fit into the free memory; an unknown way, or an
            estimate of whole covariances; too few samples.

    Cost: one forward pass and C backward passes without weight gradients. "samples": S Jacobian-vector products (about
    three forward passes each), shared by all data. "sketch": S/2 of these, and for each datum separately S/2 products
    with J and Jᵀ and a solve with S/2 right-hand sides: for few data with large outputs. On a convolutional
    autoencoder and a U-Net (256 and 2,304 outputs, one or four images) a column took a quarter of the time of a sample:
    up to about four times S outputs the exact map is the cheapest. At the time of 100 to 200 samples the error of the
    sketch was 0.2 to 0.4 times theirs with a diagonal posterior, 0.6 to 0.9 times with a Kronecker-factored one; at the
    time of 20 samples it was no better. [immer2021]

    >>> import osculate as osc
    >>> X, Y = torch.randn(30, 2), torch.randn(30, 3)
    >>> q = osc.laplace(torch.nn.Linear(2, 3), osc.likelihoods.Gaussian(), (X, Y), prior=1.0)
    >>> functional_variance(q, X[:5]).shape, functional_variance(q, X[:5], diagonal=True).shape
    (torch.Size([5, 3, 3]), torch.Size([5, 3]))
    """
    posterior = as_posterior(q)
    x = from_arrays(x, posterior.network.dtype)
    require_inputs(x)
    choose("way to functional variances", via, ("columns", "samples", "sketch"))
    if via != "columns":
        if not diagonal:
            raise ValueError(f"via={via!r} estimates variances alone: ask for diagonal=True, or take via='columns'.")
        if samples < (least := 1 if via == "samples" else 2):
            raise ValueError(f"via={via!r} needs at least {least} random vectors, got samples={samples}.")
    if isinstance(posterior, Mixture):
        within = partial(functional_variance, x=x, diagonal=diagonal, memory=memory, via=via, generator=generator)
        return _total_variance(posterior, within, x, diagonal, samples, memory)
    q = as_gaussian(posterior, "functional_variance")
    if via != "columns":
        estimate = sampled_variance if via == "samples" else sketched_variance
        return estimate(q, moved(x, q.network.device), samples, generator, memory)
    if diagonal:
        f, variance = moments(q, x, single_outputs, memory)
        return variance.reshape(f.shape)
    outputs = q.fit.plan.outputs
    require_room(
        q,
        count(x) * outputs**2,
        f"the covariances of {outputs:,} outputs for {count(x)} inputs",
        "Ask for the variances alone (diagonal=True), or for fewer inputs.",
    )
    return moments(q, x, all_outputs, memory)[1].squeeze(1)


def _total_variance(
    q: Mixture, within: Callable[..., Tensor], x: Inputs, diagonal: bool, samples: int, memory: str | int | None
) -> Tensor:
    """The mean of the members' covariances, and the covariance of their mean functions."""
    # a sketch needs two
    total = torch.stack([within(member, samples=max(2, share)) for member, share in q.shares(samples)])
    means = torch.stack([functional_mean(member, x, memory) for member in q.members])
    apart = means - means.mean(0)
    if diagonal:
        return total.mean(0) + apart.square().mean(0)
    apart = apart.flatten(2)
    return total.mean(0) + torch.einsum("mnc,mnd->ncd", apart, apart) / len(apart)


def functional_mean(q: Posterior, x: Inputs, memory: str | int | None = None) -> Float[Tensor, "N *C"]:
    """The mean of the function values: f(x; θ*) + J(x)(m − θ*) of a Gaussian, the mean of these of a mixture.

    Args:
        q: A Gaussian posterior, a mixture of them, or a point.
        x: Inputs.
        memory: Bytes that the call may take.
    """
    if isinstance(q, Mixture):
        return torch.stack([functional_mean(member, x, memory) for member in q.members]).mean(0)
    f = network_at_mode(q.network, x, memory)
    return mean_function(q, x, f) if isinstance(q, Gaussian) else f


def sampled_variance(
    q: Gaussian, x: Inputs, samples: int, generator: torch.Generator | None, memory: str | int | None = None
) -> Float[Tensor, "N *C"]:
    """The mean of the squares of J(θ_s − θ*)."""
    found = (tangents.square().sum(0) for _, tangents in deviations(q, x, samples, generator, memory))
    return torch.stack(list(found)).sum(0) / samples


def sketched_variance(
    q: Gaussian, x: Inputs, samples: int, generator: torch.Generator | None, memory: str | int | None = None
) -> Float[Tensor, "N *C"]:
    r"""The diagonal of the Nyström approximation, plus the mean square of the remainder of draws of the function.

    A draw g = J(θ_s − θ*) has covariance K, and g − KΩ (ΩᵀKΩ)⁻¹ Ωᵀg, the draw given that Ωᵀf is known, has K − K̂.
    """
    rank, limit = min(samples // 2, q.fit.plan.outputs), budget(memory, q.network.device)
    size, device = (rank, q.fit.plan.outputs), drawn_on(q.mean, generator)
    tests = torch.randn(size, generator=generator, dtype=q.mean.dtype, device=device).to(q.mean)
    step = max(1, limit // (2 * tests.numel() * tests.itemsize))
    chunks = [take(x, slice(start, start + step)) for start in range(0, count(x), step)]
    return torch.cat([_sketched(q, chunk, tests, samples - rank, generator, limit) for chunk in chunks])


def _sketched(
    q: Gaussian, x: Inputs, tests: Float[Tensor, "r c"], samples: int, generator: torch.Generator | None, memory: int
) -> Float[Tensor, "N *C"]:
    """The variance of data whose sketches fit into memory together, so that they share the draws."""
    found = []
    for n in range(count(x)):
        datum = take(x, slice(n, n + 1))
        at, (vectors, _) = Linearisation(q.network, datum), portions(q.network, datum, len(tests), memory)
        # K ω for the covariance K = J Λ⁻¹ Jᵀ and several ω: a product with Jᵀ, a solve, one with J
        parts = [at.jvp(q.precision.solve(at.vjp(tests[chunk].reshape(-1, *at.f.shape)))) for chunk in vectors]
        found.append(_nystrom(tests, torch.cat(parts).flatten(1)))
    variance = torch.stack([halves.square().sum(0) for halves, _ in found])
    for f, tangents in deviations(q, x, samples, generator, memory):
        draws = zip(tangents.flatten(2).unbind(1), found, strict=True)
        rest = torch.stack([g - g @ tests.T @ known.T @ halves for g, (halves, known) in draws], 1)
        variance = variance.reshape(f.shape) + rest.reshape(tangents.shape).square().sum(0) / samples
    return variance


def _nystrom(
    tests: Float[Tensor, "r c"], products: Float[Tensor, "r c"]
) -> tuple[Float[Tensor, "k c"], Float[Tensor, "k r"]]:
    """W with WᵀW = K̂, and T with W = T KΩ, from test vectors Ω and products KΩ as rows.

    Directions of ΩᵀKΩ within rounding of zero are left out of K̂: their variance is estimated with the rest.
    """
    core = tests.double() @ products.double().T
    values, vectors = eigh(0.5 * (core + core.T))
    kept = values > 10 * len(tests) * torch.finfo(tests.dtype).eps * values.max()
    known = (vectors[:, kept] / values[kept].sqrt()).T.to(tests.dtype)
    return known @ products, known
