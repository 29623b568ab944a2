"""What is compared for a case: each operation of the package with the dense truth, a law or a quadrature."""

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from math import log, pi
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import osculate as osc
from osculate.curvature.plan import BlockSpec
from osculate.inputs import take
from osculate.posteriors import Gaussian
from osculate.posteriors.linearised import joint_covariance
from tests.fuzz.cases import Case
from tests.fuzz.dense import Truth, kronecker_blocks, layout, squared_chain_rule, targets
from tests.fuzz.integrals import by_link, log_marginal, probabilities

#: Points of the link "mc", whose error falls at least as the inverse root of their number.
MC_POINTS = osc.predictive.link.MonteCarlo().points
#: Error of the quasi-random sums that several classes are compared with.
SAMPLED = 2e-3
#: Structures that hold every entry of G, and those whose precision is known up to the tolerance of its solves.
EXACT, ESTIMATED = ("full", "dual", "low_rank", "matrix_free"), ("matrix_free",)

#: Share of the largest derivative below which one may be the rounding of zero.
ZERO = {torch.double: 1e-7, torch.float: 1e-3}

Operation = Callable[[Case, Truth, Gaussian, Tensor], None]
#: The operations by name, with the weight by which a case draws them.
OPERATIONS: dict[str, tuple[Operation, int]] = {}


class Wrong(AssertionError):
    """A result differs from the truth."""


def operation(weight: int) -> Callable[[Operation], Operation]:
    """Register an operation by the name of its function."""

    def register(function: Operation) -> Operation:
        OPERATIONS[function.__name__] = (function, weight)
        return function

    return register


def agree(found: Any, expected: Any, tolerance: float, what: str) -> None:
    """Raise Wrong unless both are equal, relative to the largest entry expected."""
    found, expected = (torch.as_tensor(v, dtype=torch.double).detach() for v in (found, expected))
    if found.shape != expected.shape:
        raise Wrong(f"{what}: shape {tuple(found.shape)}, not {tuple(expected.shape)}")
    if not found.numel():
        return
    scale = float(expected.abs().max().clamp(min=1e-9))
    error = float((found - expected).abs().max()) / scale
    if not error <= tolerance:
        raise Wrong(f"{what}: relative error {error:.2e}, more than {tolerance:.1e}")


def require(condition: Any, what: str) -> None:
    """Raise Wrong unless a law holds."""
    if not bool(condition):
        raise Wrong(what)


def rounding(case: Case) -> float:
    """Relative error of sums in the type of the fit."""
    return 1e-8 if case.dtype == torch.double else 1e-4


def deflation(case: Case) -> float:
    """The bound on residuals that matrix_free states; its products have them where directions are negative."""
    estimated = case.kind == "hessian" and case.structure.name in ESTIMATED
    return float(torch.finfo(case.dtype).eps ** 0.25) if estimated else 0.0


def inverse_error(case: Case, precision: Tensor) -> float:
    """Relative error of what is solved with a precision: rounding, times its condition number."""
    values = torch.linalg.eigvalsh(precision)
    condition = float(values.max() / values.min().clamp(min=1e-30))
    estimated = 2e-3 if case.structure.name in ESTIMATED else 0.0
    return rounding(case) + estimated + 30 * torch.finfo(case.dtype).eps * condition


def seen_by(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> Tensor:
    """A mask of the parameters with curvature, up to those whose curvature is zero but for rounding."""
    if case.kind == "hessian":
        return torch.ones(len(dense), dtype=torch.bool)
    exact = truth.curvature if case.structure.name == "low_rank" else dense  # it keeps the rows of the whole matrix
    size = exact.diagonal().clamp(min=0).sqrt()
    rounded = (size > 0) & (size < ZERO[case.dtype] * size.max())
    require(((q.seen == (size > 0)) | rounded).all(), "parameters that the data see")
    return q.seen


def estimate_error(case: Case, q: Gaussian) -> float:
    """Six standard errors of a log determinant that is estimated: of the Hessian, which has no preconditioner."""
    if case.structure.name not in ESTIMATED or case.kind != "hessian":
        return 0.0
    return 6 * float(q.precision.log_det_error()) + 0.1


def run(case: Case) -> None:
    """Fit the case, compare its curvature, and what its operation does with it.

    Raises:
        Wrong: a result differs from the truth.
    """
    truth = Truth(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        q = case.fit()
        dense = fitted(case, truth, q)
        OPERATIONS[case.operation][0](case, truth, q, dense)


def fitted(case: Case, truth: Truth, q: Gaussian) -> Tensor:
    """Compare the curvature of a fit; G in the structure of the case, from the truth where that defines it."""
    name, limit = case.structure.name, rounding(case)
    require(q.network.space.names == case.names, f"parameters {q.network.space.names}")
    require(q.num_data == len(case.y), f"N = {q.num_data}")
    apart = abs(float(q.likelihood.log_likelihood(q.fit.statistics)) - truth.log_likelihood)
    bound = limit * truth.log_likelihood_size + 10 * torch.finfo(case.dtype).eps * truth.sensitivity
    require(apart <= bound, f"log likelihood off by {apart:.1e}")
    agree(q.mean, truth.theta, limit, "mode")
    found, G = q.structure.dense().double(), truth.curvature
    scale = G.abs().max().clamp(min=1e-9)
    agree(found, found.T, limit, "symmetry")
    if case.kind == "hessian":
        return _hessian(case, truth, q, found)
    require(torch.linalg.eigvalsh(found).min() >= -10 * limit * scale, "positive semi-definite")
    if name in EXACT and _whole(case, truth):
        agree(found, G, max(1e-6, 10 * limit) if name == "low_rank" else limit, "curvature")
        return G
    if name == "low_rank":
        require(torch.linalg.eigvalsh(G - found).min() >= -1e-6 * scale, "low rank below the whole")
    elif name == "block":
        agree(found, expected := G * _within_blocks(q), limit, "curvature")
        return expected
    elif name == "diag" or (name == "mixed_diag" and case.structure.decoder == "exact"):
        agree(found, G.diagonal().diag(), limit, "curvature")
        return G.diagonal().diag()
    elif name in ("approx_diag", "mixed_diag"):
        _squared(case, truth, found, limit)
    elif name in ("kron", "ekfac"):
        _kronecker(case, truth, q, found, limit)
    return found


def _whole(case: Case, truth: Truth) -> bool:
    """True if the settings of the structure keep every entry of G."""
    if case.structure.name == "dual":
        return case.structure.points is None or case.structure.points >= len(case.y)
    if case.structure.name == "low_rank":
        return case.structure.rank >= min(len(truth.theta), truth.data.f.numel())
    return True


def _within_blocks(q: Gaussian) -> Tensor:
    number = torch.full((q.network.space.size,), -1)
    for index, block in enumerate(q.structure.blocks):
        require((number[block.positions] == -1).all(), "blocks do not overlap")
        number[block.positions] = index
    require((number >= 0).all(), "blocks cover every parameter")
    return number.unsqueeze(1) == number


def _hessian(case: Case, truth: Truth, q: Gaussian, found: Tensor) -> Tensor:
    """Without its negative directions, in whole or by blocks; an estimated diagonal is only not negative."""
    H, name, limit = truth.hessian, case.structure.name, rounding(case)
    if name == "matrix_free":
        agree(found, H, 10 * limit, "Hessian")
        root = truth.delta.sqrt()  # negative directions in units of the prior keep its precision
        values, vectors = torch.linalg.eigh(H / root / root.unsqueeze(1))
        return (vectors * values.clamp(min=0) @ vectors.T) * root * root.unsqueeze(1)
    if name in ("full", "block"):
        expected = torch.zeros_like(H)
        for block in q.structure.blocks:
            values, vectors = torch.linalg.eigh(H[block.positions][:, block.positions])
            part = vectors * values.clamp(min=0) @ vectors.T
            expected[block.positions.unsqueeze(1), block.positions] = part
        agree(found, expected, 100 * limit, "Hessian without negative directions")
        return expected
    require((found.diagonal() >= 0).all(), "diagonal of the Hessian")
    return found


def _squared(case: Case, truth: Truth, found: Tensor, limit: float) -> None:
    """The approximate diagonal: by its recursion for a chain of layers, exact or that in each entry of a decoder."""
    agree(found, found.diagonal().diag(), limit, "diagonal")
    expected, exact = squared_chain_rule(truth), truth.curvature.diagonal()
    if expected is None:
        return
    if case.structure.name == "approx_diag":
        agree(found.diagonal(), expected, limit, "approximate diagonal")
    else:
        apart = torch.minimum((found.diagonal() - expected).abs(), (found.diagonal() - exact).abs())
        require(apart.max() <= limit * exact.abs().max().clamp(min=1e-9), "diagonal of encoder and decoder")


def _kronecker(case: Case, truth: Truth, q: Gaussian, found: Tensor, limit: float) -> None:
    """KFAC's block of every layer that is called once; the exact block or diagonal of parameters without factors."""
    known = kronecker_blocks(truth)
    corrected = case.structure.name == "ekfac"
    for spec, block in zip(q.structure.specs, q.structure.blocks, strict=True):
        at, exact = block.positions, truth.curvature[block.positions][:, block.positions]
        part = found[at][:, at]
        if spec.kind not in ("outer", "lookup"):
            whole = spec.size <= case.structure.dense_limit
            agree(part, exact if whole else exact.diagonal().diag(), limit, f"block of {spec.names[0]}")
        elif corrected:
            _corrected(spec, part, exact, known, limit)
        elif spec.names[0] in known and case.structure.sharing == "expand":
            agree(part, known[spec.names[0]][0], limit, f"Kronecker block of {spec.names[0]}")


def _corrected(spec: BlockSpec, part: Tensor, exact: Tensor, known: Any, limit: float) -> None:
    """EKFAC's block is the projection of the exact one onto the matrices with KFAC's eigenvectors."""
    size = exact.square().sum().clamp(min=1e-18)
    agree(part.trace() / size.sqrt(), exact.trace() / size.sqrt(), 100 * limit, "trace of corrected eigenvalues")
    require(((part * exact).sum() - part.square().sum()).abs() <= 100 * limit * size, "corrected eigenvalues")
    if spec.names[0] in known:
        kfac = known[spec.names[0]][0]
        bound = 1e4 * limit * kfac.norm() * part.norm() + 1e-12
        require((kfac @ part - part @ kfac).norm() <= bound, "eigenvectors of KFAC")
        require((part - exact).norm() <= (kfac - exact).norm() + 100 * limit * size.sqrt(), "closer than KFAC")


# ---- operations ----


@operation(8)
def log_evidence(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """With every constant."""
    precision = truth.precision(dense)
    error = inverse_error(case, precision)
    expected, found = truth.evidence(dense, seen_by(case, truth, q, dense)), osc.log_evidence(q)
    slack = estimate_error(case, q)
    bound = error * (len(dense) + abs(float(expected))) + slack
    require((found - expected).abs() <= bound, f"{found} is not {expected}")
    if slack:
        return
    agree(q.log_det(), precision.logdet(), max(error, 1e-6) + error * len(dense), "log determinant")


@operation(6)
def algebra(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """Products, solutions, variances, roots, densities and effective numbers of parameters."""
    precision = truth.precision(dense)
    inverse, error = precision.inverse(), inverse_error(case, precision)
    v = torch.randn(2, len(dense), generator=torch.Generator().manual_seed(0), dtype=torch.double)
    given = v.to(case.dtype)
    limit = 1e-5 if case.structure.name == "low_rank" else max(rounding(case), deflation(case))
    agree(q.precision.multiply(given), v @ precision, 10 * limit, "Λ v")
    agree(q.precision.solve(given), v @ inverse, 10 * error, "Λ⁻¹ v")
    if case.structure.name not in ESTIMATED:
        agree(q.variance(), inverse.diagonal(), 10 * error, "variances")
        gamma = 1 - truth.delta * inverse.diagonal()
        found = osc.evidence.effective_parameters(q)
        parts = dict(zip(truth.sizes, gamma.split(list(truth.sizes.values())), strict=True))
        for name, part in parts.items():
            require(abs(found[name] - float(part.sum())) <= 10 * error * part.numel(), f"γ of {name}")
    apart = 0.1 * v[0]
    expected = 0.5 * (precision.logdet() - apart @ precision @ apart - len(v[0]) * log(2 * pi))
    found = q.log_prob(q.mean + apart.to(case.dtype))
    bound = error * (100 + abs(float(expected))) + estimate_error(case, q)
    require((found - expected).abs() <= bound, f"log q(θ): {found} is not {expected}")


@operation(6)
def samples(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """The root by which draws are coloured has covariance Λ⁻¹, and draws come from it."""
    inverse = truth.precision(dense).inverse()
    error = 10 * inverse_error(case, truth.precision(dense))
    columns = q.precision.colour(torch.eye(len(dense), dtype=case.dtype)).double()
    agree(columns.T @ columns, inverse, error, "covariance of draws")
    noise = torch.randn(2, len(dense), generator=torch.Generator().manual_seed(1), dtype=torch.double).to(case.dtype)
    drawn = q.sample(2, torch.Generator().manual_seed(1))
    require(drawn.shape == noise.shape, f"draws of shape {tuple(drawn.shape)}")
    many = q.sample(400, torch.Generator().manual_seed(2)).double() - truth.theta
    sigma = inverse.diagonal().sqrt()
    require((many.mean(0).abs() <= 6 * sigma / 20 + 1e-5).all(), "mean of draws")
    spread = many.square().mean(0) / sigma**2
    require(((spread - 1).abs() <= 7 * (2 / 400) ** 0.5 + error).all(), "variance of draws")


@operation(8)
def functional_variance(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """J Λ⁻¹ Jᵀ of each input, its diagonal, and over all inputs together."""
    precision, J = truth.precision(dense), truth.new.jacobian
    expected, error = J @ precision.inverse() @ J.mT, 10 * inverse_error(case, precision)
    new = case.cast(case.new)
    agree(osc.functional_variance(q, new, memory=case.memory), expected, error, "covariances of outputs")
    diagonal = osc.functional_variance(q, new, diagonal=True, memory=case.memory)
    agree(diagonal.flatten(1), expected.diagonal(dim1=1, dim2=2), error, "variances of outputs")
    mean, found = joint_covariance(q, new)
    flat = J.flatten(0, 1)
    agree(found, flat @ precision.inverse() @ flat.T, error, "joint covariance")
    agree(mean, truth.new.f.reshape(-1), rounding(case), "mean of the function")


@operation(3)
def functions(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """f + J (θ_s − θ*) for the draws of the same generator."""
    new = case.cast(case.new)
    found = osc.sample_functions(q, new, 3, generator=torch.Generator().manual_seed(3), memory=case.memory)
    theta = q.sample(3, torch.Generator().manual_seed(3)).double()
    apart = torch.einsum("ncp,sp->snc", truth.new.jacobian, theta - truth.theta)
    agree(found.flatten(2), truth.new.f + apart, 100 * rounding(case), "linearised functions")


@operation(12)
def predict(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """The predictive by a link of the likelihood, with moments in closed form and densities by quadrature."""
    likelihood = case.likelihood
    precision = truth.precision(dense)
    J, new = truth.new.jacobian, case.cast(case.new)
    covariance, error = J @ precision.inverse() @ J.mT, 10 * inverse_error(case, precision)
    place = layout(likelihood, truth.new.shape)
    mean = truth.new.f[:, place]
    local = covariance[:, place.unsqueeze(-1), place.unsqueeze(-2)]
    link = case.draw.choice(likelihood.links) if likelihood.links else None
    found = osc.predict(q, new, link=link, memory=case.memory)
    if isinstance(likelihood, osc.likelihoods.Categorical | osc.likelihoods.Bernoulli):
        _probabilities(link, found.probs, mean, local, error)
        return
    deviation = float(local.diagonal(dim1=-2, dim2=-1).max()) ** 0.5
    y = targets(likelihood, _drawn(case, truth))
    if deviation > 5:
        require(found.mean.isfinite().all() or deviation > 10, "finite predictive")
        return
    _moments(
        case, targets(likelihood, found.mean.double()), targets(likelihood, found.variance.double()), mean, local, error
    )
    given = case.cast(_drawn(case, truth))
    at = targets(likelihood, found.log_prob(given).double())
    expected = log_marginal(likelihood, mean, local, y.double())
    apart = (at - expected).abs()
    bound = error * (1 + expected.abs()) + integration_error(likelihood, deviation)
    require((apart <= bound).all(), f"log predictive off by {float(apart.max()):.1e}")


def integration_error(likelihood: Any, deviation: float) -> float:
    """The error of log probabilities that the documentation states, for this largest standard deviation of f."""
    if isinstance(likelihood, osc.likelihoods.Poisson):
        return 2e-7 if deviation <= 2 else 2e-6 if deviation <= 3 else 4e-4
    if isinstance(likelihood, osc.likelihoods.ContinuousBernoulli):
        return 1e-6
    if isinstance(likelihood, osc.likelihoods.HeteroscedasticGaussian):
        return 1e-4 if deviation <= 3 else 1e-2
    return 1e-5


@operation(3)
def links(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """Every link on random moments, from certain to very uncertain logits."""
    generator = torch.Generator().manual_seed(case.seed)
    for likelihood, classes in (
        (osc.likelihoods.Bernoulli(), 1),
        (osc.likelihoods.Categorical(), case.draw.randint(2, 5)),
    ):
        mean = 2 * torch.randn(3, 1, classes, generator=generator, dtype=torch.double)
        root = torch.randn(3, 1, classes, classes, generator=generator, dtype=torch.double)
        local = 10 ** case.draw.uniform(-2, 1.5) * root @ root.mT / classes
        for name in likelihood.links:
            link = osc.predictive.link.REGISTRY[name]()
            given = local if likelihood.needs_covariance(link) else local.diagonal(dim1=-2, dim2=-1)
            _probabilities(name, likelihood.marginal(mean[:, 0], given, link).probs, mean, local, 1e-9)


def _drawn(case: Case, truth: Truth) -> Tensor:
    """Targets at the new inputs that are possible for the likelihood."""
    with torch.random.fork_rng():
        torch.manual_seed(case.seed)
        f = truth.new.f.reshape(len(truth.new.f), *truth.new.shape)
        return case.likelihood.distribution(f).sample()


def _probabilities(link: Any, found: Tensor, mean: Tensor, local: Tensor, error: float) -> None:
    """Against the definition of the link, and the integral up to the error that its documentation states."""
    found = found.double().reshape(mean.shape)
    defined = by_link(link, mean, local)
    if defined is not None and (link != "bridge" or float(local.abs().max()) > 1e-3):  # it bounds small variances
        agree(found, defined, error + 1e-6, f"link {link}")
    truth = probabilities(mean.flatten(0, 1), local.flatten(0, 1)).reshape(mean.shape)
    apart = float((found - truth).abs().max())
    deviation = float(local.diagonal(dim1=-2, dim2=-1).max().clamp(min=0)) ** 0.5
    bounds = {"mc": SAMPLED + MC_POINTS**-0.5 * min(1.0, deviation), "probit": 0.02}
    if link == "mc" or mean.shape[-1] == 1:
        require(apart <= bounds[link] + error, f"link {link} is {apart:.3f} from the integral")


def _moments(case: Case, mean: Tensor, variance: Tensor, f: Tensor, local: Tensor, error: float) -> None:
    """Mean and variance of y where they have a closed form."""
    m, v = f[..., 0], local[..., 0, 0]
    if isinstance(case.likelihood, osc.likelihoods.Poisson):
        rate = (m + v / 2).exp()
        bound = error * (1 + float(v.max()))
        agree(mean, rate, bound, "mean of counts")
        agree(variance, rate + rate**2 * v.expm1(), 4 * bound, "variance of counts")
        return
    if not case.likelihood.real_valued:
        return
    agree(mean, m, rounding(case), "predictive mean")
    if isinstance(case.likelihood, osc.likelihoods.Gaussian):
        scale = torch.as_tensor(case.likelihood.scale, dtype=torch.double).reshape(-1)
        agree(variance, v + scale**2, error, "predictive variance")
    elif isinstance(case.likelihood, osc.likelihoods.HeteroscedasticGaussian):
        s, spread = f[..., 1], local[..., 1, 1]
        agree(variance, v + (s + spread / 2).exp(), error * (1 + float(spread.max())) + 1e-4, "predictive variance")


@operation(2)
def predict_jointly(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """The joint over outputs or the batch, with and without noise; for Gaussian noise."""
    precision, new = truth.precision(dense), case.cast(case.new)
    error = 10 * inverse_error(case, precision)
    joint, noise = case.draw.choice(["outputs", "batch"]), case.draw.random() < 0.7
    J = truth.new.jacobian
    rows = J if joint == "outputs" else J.flatten(0, 1).unsqueeze(0)
    found = osc.predict(q, new, joint=joint, noise=noise)
    scale = torch.as_tensor(case.likelihood.scale, dtype=torch.double).reshape(-1).expand(J.shape[1])  # type: ignore[attr-defined]
    expected = rows @ precision.inverse() @ rows.mT
    expected = expected + noise * scale.square().repeat(rows.shape[1] // J.shape[1]).diag()
    expected = expected if joint == "outputs" else expected[0]
    factor = found.scale_tril.double()
    agree(factor @ factor.mT, expected, error + 1e-6, "joint covariance of targets")


@operation(3)
def maximise_evidence(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """It never lowers the evidence, and ends where γ = δ‖θ − μ‖² within its tolerance, or at a boundary."""
    best = osc.maximise_evidence(q, noise=False)
    if case.kind == "hessian" and case.structure.name in ESTIMATED:
        return  # directions are negative relative to the prior, and change with it
    require(best.network is q.network, "the network is kept")
    delta = best.prior.vector(q.network.space).double()
    seen = seen_by(case, truth, q, dense)
    before, after = truth.evidence(dense, seen), truth.evidence(dense, seen, delta)
    if case.structure.name in ESTIMATED or case.dtype == torch.float:
        require(after >= before - 0.05 * (1 + before.abs()), f"evidence fell from {before:.4f} to {after:.4f}")
        return
    require(after >= before - 1e-4, f"evidence fell from {before:.4f} to {after:.4f}")
    inverse = (dense / case.temperature + delta.diag()).inverse()
    squares = truth.apart(seen).square()
    gamma, cost = 1 - delta * inverse.diagonal(), delta * squares
    names = q.prior.members(q.network.space)
    groups = torch.arange(len(names)) if case.family == "diagonal" else torch.cat(
        [torch.full((n,), 0 if case.family == "isotropic" else i) for i, n in enumerate(truth.sizes.values())]
    )  # fmt: skip
    for group in groups.unique():
        inside = groups == group
        value = float(delta[inside][0])
        g, c = float(gamma[inside].sum()), float(cost[inside].sum())
        if 1e-12 < value < 1e10 and g > 1e-2:
            require(abs(g - c) <= 2e-3 * g + 1e-5, f"γ = {g:.5f} and δ‖θ‖² = {c:.5f} of a group")


@operation(3)
def gradients(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """The derivative of the evidence by the prior precisions and the noise scale."""
    values = q.prior.precision.detach().clone().requires_grad_()
    noisy = isinstance(case.likelihood, osc.likelihoods.Gaussian)
    factor = torch.ones((), dtype=case.dtype, requires_grad=True)
    changes = {"prior": q.prior.with_precision(values)}
    if noisy:
        changes["likelihood"] = case.likelihood.times(factor)  # type: ignore[attr-defined]
    found = torch.autograd.grad(osc.log_evidence(q.replace(**changes)), [values, factor][: 1 + noisy])
    leaf, other = values.detach().double().requires_grad_(), torch.ones((), dtype=torch.double, requires_grad=True)
    sizes = torch.tensor(list(truth.sizes.values()))
    delta = leaf.repeat_interleave(sizes) if case.family == "layerwise" else leaf.expand(len(dense))
    seen = seen_by(case, truth, q, dense)
    value = truth.evidence(dense, seen, delta, other if noisy else None)
    expected = torch.autograd.grad(value, [leaf, other][: 1 + noisy])
    error = 10 * inverse_error(case, truth.precision(dense)) + (0.1 if case.structure.name in ESTIMATED else 0)
    for name, one, two in zip(("precisions", "noise"), found, expected, strict=False):
        size = float(two.abs().max()) + len(dense)
        require((one.double() - two).abs().max() <= error * size, f"gradient in {name}: {one} is not {two}")


@operation(3)
def replaced(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """Another prior, temperature and noise after the precision was used: nothing old is kept."""
    osc.log_evidence(q)
    q.variance() if case.structure.name not in ESTIMATED else q.precision.solve(q.mean)
    changes: dict[str, Any] = {"prior": q.prior.with_precision(3 * q.prior.precision), "temperature": 0.5}
    noise = None
    if isinstance(case.likelihood, osc.likelihoods.Gaussian):
        noise = torch.tensor(1.4, dtype=torch.double)
        changes["likelihood"] = case.likelihood.times(1.4)
    other = q.replace(**changes)
    factor = 1.0 if noise is None else float(noise) ** -2
    precision = factor / 0.5 * dense + 3 * truth.delta.diag()
    error = 10 * inverse_error(case, precision)
    v = torch.ones(len(dense), dtype=torch.double)
    agree(other.precision.solve(v.to(case.dtype)), precision.inverse() @ v, error, "Λ⁻¹ v after a change")
    apart, delta = truth.apart(seen_by(case, truth, q, dense)), 3 * truth.delta
    fits = truth.log_likelihood if noise is None else float(truth.log_likelihood_at(changes["likelihood"]))
    expected = fits / 0.5 + 0.5 * float((delta.log() - delta * apart**2).sum()) - 0.5 * float(precision.logdet())
    found = float(osc.log_evidence(other))
    bound = error * (len(dense) + abs(expected)) + estimate_error(case, other)
    require(abs(found - expected) <= bound, f"{found} is not {expected} after a change")


@operation(4)
def saved(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """A file gives the same tensors and the same predictions."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "q.safetensors"
        osc.save(q, path)
        module = case.model()
        for parameter in module.parameters():
            nn.init.zeros_(parameter)
        again = osc.load(path, module)
    for name, tensor in q.structure.tensors().items():
        require(torch.equal(tensor, again.structure.tensors()[name]), f"tensor {name} in a file")
    require(torch.equal(q.mean, again.mean), "mean in a file")
    require(again.temperature == q.temperature and again.num_data == q.num_data, "numbers in a file")
    new = case.cast(case.new)
    expected, found = osc.functional_variance(q, new), osc.functional_variance(again, new)
    agree(found, expected, 1e-6 if case.dtype == torch.double else 1e-3, "variance from a file")
    agree(osc.log_evidence(again), osc.log_evidence(q), 1e-6, "evidence from a file")
    J, precision = truth.new.jacobian, truth.precision(dense)
    agree(found, J @ precision.inverse() @ J.mT, 10 * inverse_error(case, precision), "variance from a file")


@operation(4)
def shards(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """Fits of parts of the data add up to that of all."""
    if len(case.y) == 1:
        return
    half = len(case.y) // 2
    one, two = (case.fit(case.data(part)) for part in (slice(0, half), slice(half, None)))
    both = one.replace(fit=one.fit + two.fit)
    require(both.num_data == len(case.y), f"N = {both.num_data}")
    if case.kind == "fisher" or getattr(case.structure, "points", None):
        return
    approximate = case.structure.name == "low_rank" and not _whole(case, truth)
    limit = 1e-5 if case.structure.name == "low_rank" else 10 * rounding(case)
    if case.kind == "hessian":  # only matrix_free adds these, with all their directions
        agree(both.structure.dense(), truth.hessian, limit, "sum of two Hessians")
        return
    if not approximate:
        agree(both.structure.dense(), dense, limit, "sum of two fits")
    precision = truth.precision(both.structure.dense().double() if approximate else dense)
    error = inverse_error(case, precision)
    seen = seen_by(case, truth, both, dense)
    expected = truth.evidence(both.structure.dense().double() if approximate else dense, seen)
    found = osc.log_evidence(both)
    require(
        (found - expected).abs() <= error * (len(dense) + abs(float(expected))) + 1e-6, f"{found} is not {expected}"
    )


@operation(3)
def sequential(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """The posterior of some data as the prior of the others is that of all, where curvatures add."""
    half = len(case.y) // 2
    if half == 0:
        return
    first = case.fit(case.data(slice(0, half))).replace(temperature=1.0)
    second = case.fit(case.data(slice(half, None)), prior=first).replace(temperature=1.0)
    require(second.num_data == len(case.y) - half, f"N = {second.num_data}")
    eye = torch.eye(len(dense), dtype=case.dtype)
    found = second.precision.multiply(eye).double()
    agree(found, found.T, max(10 * deflation(case), 100 * rounding(case)), "symmetric precision")
    lossy = case.structure.name in ("kron", "low_rank") or case.kind in ("fisher", "hessian")
    if not lossy and not getattr(case.structure, "points", None):
        agree(found, dense + truth.delta.diag(), 100 * rounding(case), "posterior after a posterior")
    solved = second.precision.solve(found.to(case.dtype)).double()
    agree(solved, eye, 100 * inverse_error(case, found), "inverse of a sequential precision")


@operation(1)
def refine(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """The bound never falls; for Gaussian noise and every entry of G the result is the exact posterior."""
    exact = isinstance(case.likelihood, osc.likelihoods.Gaussian) and case.structure.name in ("full", "dual")
    exact = exact and case.kind == "ggn" and _whole(case, truth)
    data = case.data()
    refined = osc.refine(q, data, trust=None, steps=1) if exact else osc.refine(q, data)
    before, after = osc.evidence.linear_elbo(q, data), osc.log_evidence(refined, data=data)
    require(after.isfinite(), "finite bound")
    tolerance = 1e-3 if case.dtype == torch.double else 1e-2
    require(after >= before - tolerance * (1 + before.abs()), f"the bound fell from {before:.5f} to {after:.5f}")
    if exact:
        residual = (targets(case.likelihood, case.y) - truth.positions(truth.data.f, truth.data.shape)[..., 0]).double()
        precision, J = truth.precision(dense), truth.data.jacobian
        place = layout(case.likelihood, truth.data.shape)[:, 0]
        r = torch.zeros_like(truth.data.f)
        r[:, place] = residual
        pull = torch.einsum("ncp,ncd,nd->p", J, truth.output_hessian, r) / case.temperature
        step = precision.inverse() @ (pull - truth.delta * (truth.theta - case.centre))
        found = refined.mean.double() - truth.theta
        apart = found - step
        distance = float((apart @ precision @ apart).clamp(min=0)) ** 0.5
        length = float((step @ precision @ step).clamp(min=0)) ** 0.5
        require(
            distance <= (0.02 + inverse_error(case, precision)) * (length + 1e-3),
            f"mean {distance:.3f} off, of {length:.3f}",
        )


@operation(2)
def last_layer(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """A posterior over the last layer alone, in closed form where it is one."""
    q = case.fit(subset="last_layer", prior=1.0)
    part = replace(case, subset=q.network.space.names)
    q = q.replace(prior=part.prior())
    truth = Truth(part)
    functional_variance(part, truth, q, fitted(part, truth, q))


@operation(2)
def linear_evidence(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """The evidence at the mode of the linear model; for Gaussian noise it is that of a Gaussian process, exactly."""
    found = osc.log_evidence(q, mode="linear", data=case.data())
    exact = case.structure.name in ("full", "dual") and _whole(case, truth) and case.kind == "ggn"
    if not exact or not isinstance(case.likelihood, osc.likelihoods.Gaussian) or case.temperature != 1:
        require(found.isfinite(), "finite evidence")
        return
    J, scale = truth.data.jacobian.flatten(0, 1), torch.as_tensor(case.likelihood.scale, dtype=torch.double)
    noise = scale.reshape(-1).expand(truth.data.f.shape[1]).square().repeat(len(truth.data.f))
    apart = case.y.double().reshape(-1) - truth.data.f.reshape(-1) + J @ (truth.theta - case.centre)
    K = J @ (J / truth.delta).T + noise.diag()
    expected = -0.5 * (apart @ K.inverse() @ apart + K.logdet() + len(apart) * log(2 * pi))
    error = 10 * inverse_error(case, truth.precision(dense)) + 1e-3
    require((found - expected).abs() <= error * (1 + expected.abs()), f"linear evidence {found} is not {expected}")


@operation(2)
def ways(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """The network itself, and a mixture over draws of the linearised function with the same generator."""
    new = case.cast(case.new)
    f = case.cast(truth.new.f).reshape(-1, *truth.new.shape)
    expected, found = case.likelihood.distribution(f), osc.predict(q, new, via="mode")
    what = "probs" if isinstance(case.likelihood, osc.likelihoods.Categorical) else "mean"
    agree(getattr(found, what), getattr(expected, what), 100 * rounding(case), "predictive of the network")
    if not isinstance(case.likelihood, osc.likelihoods.Categorical | osc.likelihoods.Bernoulli):
        return
    found = osc.predict(q, new, link="functions", samples=4, generator=torch.Generator().manual_seed(4))
    theta = q.sample(4, torch.Generator().manual_seed(4)).double() - truth.theta
    drawn = truth.new.f + torch.einsum("ncp,sp->snc", truth.new.jacobian, theta)
    drawn = drawn[..., layout(case.likelihood, truth.new.shape)]
    probs = drawn.softmax(-1) if drawn.shape[-1] > 1 else drawn.sigmoid()
    agree(found.probs.double().reshape(probs.shape[1:]), probs.mean(0), 1e-4, "mean over functions")


#: Changes that must be refused, by name.
SPOILS: dict[str, Callable[[Case, Gaussian], Any]] = {
    "nan input": lambda c, q: osc.predict(q, _without_numbers(c.cast(c.new))),
    "nan target": lambda c, q: c.fit((c.cast(c.x), torch.full(c.y.shape, float("nan"), dtype=c.dtype))),
    "wrong shape": lambda c, q: c.fit((c.cast(c.x), c.cast(c.y).unsqueeze(-1).repeat_interleave(2, -1))),
    "fewer targets": lambda c, q: c.fit((c.cast(c.x), c.cast(c.y)[:0])),
    "empty": lambda c, q: c.fit((take(c.cast(c.x), slice(0)), c.cast(c.y)[:0])),
    "no data": lambda c, q: c.fit([]),
    "negative prior": lambda c, q: c.fit(prior=-1.0),
    "prior without use": lambda c, q: c.fit(prior=None),
    "unknown structure": lambda c, q: c.fit(structure="dense"),
    "unknown curvature": lambda c, q: c.fit(curvature="newton"),
    "unknown parameter": lambda c, q: c.fit(subset=["no.such"]),
    "temperature": lambda c, q: q.replace(temperature=0.0),
    "samples": lambda c, q: osc.sample_functions(q, c.cast(c.new), 0),
    "generator": lambda c, q: osc.sample_functions(q, c.cast(c.new), 2, generator=3),  # type: ignore[arg-type]
    "unknown link": lambda c, q: osc.predict(q, c.cast(c.new), link="sigmoid"),
    "unknown way": lambda c, q: osc.predict(q, c.cast(c.new), via="exactly"),
    "empty input": lambda c, q: osc.predict(q, take(c.cast(c.new), slice(0))),
    "memory": lambda c, q: osc.functional_variance(q, c.cast(c.new), memory="much"),
}


def _without_numbers(x: Any) -> Any:
    """NaN in every real-valued tensor, or no inputs at all where there is none."""
    real = isinstance(x, Tensor) and x.is_floating_point()
    return x * float("nan") if real else take(x, slice(0))


@operation(4)
def spoiled(case: Case, truth: Truth, q: Gaussian, dense: Tensor) -> None:
    """What cannot be answered is refused."""
    name = case.draw.choice(list(SPOILS))
    SPOILS[name](case, q)
    raise Wrong(f"{name} was accepted")
