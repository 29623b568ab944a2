"""The dense truth of a case in float64: densities and output Hessians in closed form, matrices from a dense Jacobian.

Nothing here is computed by the engine, the structures, the evidence or the likelihoods of the package.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from math import log, pi
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

from osculate import likelihoods
from osculate.curvature import reference
from osculate.inputs import Inputs, call, count
from osculate.likelihoods import Likelihood
from osculate.randomness import Keyed, fresh_seed, keyed
from tests.fuzz.cases import Case

#: Gauss–Legendre nodes on [0, 1], for the normaliser of the continuous Bernoulli distribution.
NODES, WEIGHTS = (torch.from_numpy(values) / 2 for values in np.polynomial.legendre.leggauss(200))
NODES = NODES + 0.5


def layout(likelihood: Likelihood, shape: tuple[int, ...]) -> Tensor:
    """The index, among the c outputs of a datum, of each output that interacts with others: (T, E)."""
    index = torch.arange(torch.Size(shape).numel()).reshape(shape)
    if not isinstance(likelihood, likelihoods.Categorical | likelihoods.HeteroscedasticGaussian):
        return index.reshape(-1, 1)
    index = index.movedim(0 if likelihood.class_axis == 1 else -1, -1)
    if isinstance(likelihood, likelihoods.Categorical):
        return index.reshape(-1, index.shape[-1])
    half = index.shape[-1] // 2
    return torch.stack([index[..., :half].reshape(-1), index[..., half:].reshape(-1)], -1)


def targets(likelihood: Likelihood, y: Tensor) -> Tensor:
    """Targets (N, T), or probabilities of classes (N, T, E), in the order of :func:`layout`."""
    if isinstance(likelihood, likelihoods.Categorical) and y.is_floating_point():
        y = y.movedim(1 if likelihood.class_axis == 1 else -1, -1)
        return y.reshape(len(y), -1, y.shape[-1])
    if isinstance(likelihood, likelihoods.HeteroscedasticGaussian) and likelihood.class_axis == 1:
        y = y.movedim(1, -1)
    return y.reshape(len(y), -1)


def log_density(likelihood: Likelihood, f: Tensor, y: Tensor) -> Tensor:
    """log p(y|f) at each position, f (N, T, E) in float64 and y from :func:`targets`."""
    one = f[..., 0]
    if isinstance(likelihood, likelihoods.Categorical):
        logs = f - f.logsumexp(-1, keepdim=True)
        if y.is_floating_point():
            return (y * logs).sum(-1)
        picked = logs.gather(-1, y.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        return torch.where(y < 0, 0.0, picked)
    if isinstance(likelihood, likelihoods.HeteroscedasticGaussian):
        return -0.5 * ((y - one) ** 2 / f[..., 1].exp() + f[..., 1] + log(2 * pi))
    if isinstance(likelihood, likelihoods.Bernoulli):
        return y * F.logsigmoid(one) + (1 - y) * F.logsigmoid(-one)
    if isinstance(likelihood, likelihoods.ContinuousBernoulli):
        return y * one - (one.unsqueeze(-1) * NODES + WEIGHTS.log()).logsumexp(-1)
    if isinstance(likelihood, likelihoods.Poisson):
        return torch.from_numpy(np.asarray(stats.poisson.logpmf(y.numpy(), one.exp().numpy())))
    if isinstance(likelihood, likelihoods.StudentT):
        at = stats.t.logpdf(y.numpy(), likelihood.df, loc=one.numpy(), scale=likelihood.scale)
        return torch.from_numpy(np.asarray(at))
    assert isinstance(likelihood, likelihoods.Gaussian)
    scale = torch.as_tensor(likelihood.scale, dtype=torch.double).reshape(-1)
    return -0.5 * ((y - one) / scale) ** 2 - scale.log() - 0.5 * log(2 * pi)


def local_hessian(likelihood: Likelihood, f: Tensor, y: Tensor) -> Tensor:
    """−∂² log p, or its expectation where the density is not log-concave: (N, T, E, E)."""
    one = f[..., 0]
    if isinstance(likelihood, likelihoods.Categorical):
        p = f.softmax(-1)
        blocks = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
        return blocks if y.is_floating_point() else blocks * (y >= 0)[..., None, None]
    if isinstance(likelihood, likelihoods.HeteroscedasticGaussian):
        return torch.diag_embed(torch.stack([(-f[..., 1]).exp(), torch.full_like(one, 0.5)], -1))
    if isinstance(likelihood, likelihoods.Bernoulli):
        value = one.sigmoid() * (-one).sigmoid()
    elif isinstance(likelihood, likelihoods.ContinuousBernoulli):
        density = (one.unsqueeze(-1) * NODES + WEIGHTS.log()).softmax(-1)
        value = (density * (NODES - (density * NODES).sum(-1, keepdim=True)) ** 2).sum(-1)
    elif isinstance(likelihood, likelihoods.Poisson):
        value = one.exp()
    elif isinstance(likelihood, likelihoods.StudentT):
        value = torch.full_like(one, (likelihood.df + 1) / (likelihood.df + 3) / likelihood.scale**2)
    else:
        value = torch.as_tensor(likelihood.scale, dtype=torch.double).reshape(-1).pow(-2).expand_as(one)  # type: ignore[attr-defined]
    return value[..., None, None]


@dataclass(frozen=True)
class Data:
    """The network at some inputs.

    Attributes:
        f: Outputs (N, c).
        jacobian: J (N, c, P) over the parameters of the posterior.
        shape: Shape of the outputs of one datum.
    """

    f: Tensor
    jacobian: Tensor
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Truth:
    """The dense truth of a case."""

    case: Case

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The number of entries of each parameter of the posterior."""
        return {name: self.case.net.module.get_parameter(name).numel() for name in self.case.names}

    @cached_property
    def theta(self) -> Tensor:
        """The mode, flat."""
        return torch.cat([self.case.net.module.get_parameter(name).detach().reshape(-1) for name in self.sizes])

    @cached_property
    def delta(self) -> Tensor:
        """The prior precision of each parameter."""
        values = self.case.precisions
        return torch.cat(
            [values[n].expand(self.case.net.module.get_parameter(n).shape).reshape(-1) for n in self.sizes]
        )

    def at(self, x: Inputs) -> Data:
        """The network at some inputs."""
        module = deepcopy(self.case.net.module)  # an older weight norm keeps its graph
        with torch.no_grad():
            f = call(module, x)
        everything = reference.jacobian(module, x)
        named = [(name, p.numel()) for name, p in module.named_parameters() if p.requires_grad]
        columns = torch.cat([torch.full((n,), name in self.sizes) for name, n in named])
        return Data(f.reshape(len(f), -1), everything[..., columns], tuple(f.shape[1:]))

    @cached_property
    def data(self) -> Data:
        """The network at the training inputs."""
        return self.at(self.case.x)

    @cached_property
    def new(self) -> Data:
        """The network at the inputs to predict at."""
        return self.at(self.case.new)

    def positions(self, f: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Outputs (N, c) as (N, T, E)."""
        return f[:, layout(self.case.likelihood, shape)]

    @cached_property
    def log_likelihood(self) -> float:
        """log p(D|θ*)."""
        return float(self.log_likelihood_at(self.case.likelihood))

    def log_likelihood_at(self, likelihood: Likelihood) -> Tensor:
        """log p(D|θ*) with another noise."""
        return self._log_densities(likelihood).sum()

    @cached_property
    def log_likelihood_size(self) -> float:
        """The sum of the sizes of its terms, to which its rounding is relative."""
        return float(self._log_densities(self.case.likelihood).abs().sum()) + len(self.case.y)

    @cached_property
    def sensitivity(self) -> float:
        """The change of the log likelihood by a relative change of one in outputs and targets."""
        y = targets(self.case.likelihood, self.case.y)
        return float((self.scores().abs() * (self.data.f.abs() + y.abs().amax())).sum())

    def _log_densities(self, likelihood: Likelihood) -> Tensor:
        f = self.positions(self.data.f, self.data.shape)
        return log_density(likelihood, f, targets(likelihood, self.case.y))

    @cached_property
    def output_hessian(self) -> Tensor:
        """Λ_n over all outputs of a datum, (N, c, c)."""
        f, place = self.data.f, layout(self.case.likelihood, self.data.shape)
        local = local_hessian(self.case.likelihood, f[:, place], targets(self.case.likelihood, self.case.y))
        dense = f.new_zeros(*f.shape, f.shape[1])
        dense[:, place.unsqueeze(-1), place.unsqueeze(-2)] = local
        return dense

    @cached_property
    def output_curvature(self) -> Tensor:
        """The matrix over all outputs of a datum in the kind of the case, (N, c, c); for the Hessian the output one."""
        case = self.case
        if case.kind == "empirical_fisher":
            score = self.scores()
            return score.unsqueeze(2) * score.unsqueeze(1)
        if case.kind != "fisher":
            return self.output_hessian
        keys = keyed(fresh_seed(torch.Generator().manual_seed(case.seed)), torch.arange(len(case.y)))
        f = self.data.f.reshape(-1, *self.data.shape).to(case.dtype)
        root = case.likelihood.sampled_root(f, case.cast(case.y), 2, Keyed(keys)).double().flatten(2)
        return torch.einsum("vnc,vnd->ncd", root, root)

    @cached_property
    def each(self) -> Tensor:
        """The curvature of each datum, (N, P, P), in the kind of the case."""
        J = self.data.jacobian
        return torch.einsum("ncp,ncd,ndq->npq", J, self.output_curvature, J)

    def scores(self) -> Tensor:
        """∂ log p/∂f by differences of the density in float64, (N, c)."""
        likelihood, f, y = self.case.likelihood, self.data.f, targets(self.case.likelihood, self.case.y)
        place, step = layout(likelihood, self.data.shape), 1e-5
        found = torch.zeros_like(f)
        for e in range(place.shape[1]):
            ends = []
            for sign in (1, -1):
                moved = f[:, place].clone()
                moved[..., e] += sign * step
                ends.append(log_density(likelihood, moved, y))
            found[:, place[:, e]] = (ends[0] - ends[1]) / (2 * step)
        return found

    @cached_property
    def curvature(self) -> Tensor:
        """G, every entry of it; of the Hessian over all parameters together."""
        if self.case.kind == "hessian":
            return self.hessian
        return self.each.sum(0)

    @cached_property
    def hessian(self) -> Tensor:
        """−∂² log p(D|θ)/∂θ², of a copy of the network in which other parameters are frozen."""
        module = deepcopy(self.case.net.module)
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name in self.sizes)
        return reference.hessian(module, self.case.likelihood, self.case.x, self.case.y)

    def apart(self, seen: Tensor) -> Tensor:
        """θ − μ of the parameters that the data see, and zero for the others, over which the evidence integrates."""
        return (self.theta - self.case.centre) * seen

    def evidence(self, curvature: Tensor, seen: Tensor, delta: Tensor | None = None, noise: Any = None) -> Tensor:
        """The Laplace evidence for a curvature, differentiable.

        Args:
            curvature: G, at the noise of the case.
            seen: A mask of the parameters that the data see.
            delta: Prior precisions; by default those of the case.
            noise: Factor on the noise scale of a Gaussian likelihood.
        """
        case = self.case
        delta = self.delta if delta is None else delta
        fits, factor = torch.tensor(self.log_likelihood, dtype=torch.double), 1.0
        if noise is not None:
            scale = torch.as_tensor(case.likelihood.scale, dtype=torch.double) * noise  # type: ignore[attr-defined]
            f = self.positions(self.data.f, self.data.shape)[..., 0]
            square = ((targets(case.likelihood, case.y) - f) / scale.reshape(-1)) ** 2
            fits = -0.5 * (square + 2 * scale.reshape(-1).log() + log(2 * pi)).sum()
            factor = 1 / noise**2
        apart = self.apart(seen)
        precision = factor / case.temperature * curvature + delta.diag()
        prior = 0.5 * (delta.log() - log(2 * pi) - delta * apart**2).sum()
        return fits / case.temperature + prior + 0.5 * len(delta) * log(2 * pi) - 0.5 * precision.logdet()

    def precision(self, curvature: Tensor) -> Tensor:
        """Λ."""
        return curvature / self.case.temperature + self.delta.diag()


def kronecker_blocks(truth: Truth) -> Mapping[str, tuple[Tensor, Tensor, Tensor]]:
    """The block of each layer that is called once, by the name of its weight: KFAC's, and the factors B and A.

    Inputs and output gradients are read by hooks; each position of a datum counts as a datum. Layers whose rows g ⊗ a
    are not their Jacobian, such as those that share their weight, are left out.
    """
    module, case, found = deepcopy(truth.case.net.module), truth.case, {}
    calls: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
            calls[name] = []
            layer.register_forward_hook(lambda _, given, output, name=name: calls[name].append((given[0], output)))
    f = call(module, case.x).reshape(count(case.x), -1)
    offsets = dict(zip(truth.sizes, np.cumsum([0, *truth.sizes.values()]), strict=False))
    for name, once in calls.items():
        layer, weight = module.get_submodule(name), f"{name}.weight" if name else "weight"
        if len(once) != 1 or weight not in truth.sizes or once[0][1].shape[0] != len(f):
            continue
        given, output = once[0]
        rows = [torch.autograd.grad(one.sum(), output, retain_graph=True, allow_unused=True)[0] for one in f.T]
        g = torch.stack([torch.zeros_like(output) if row is None else row for row in rows])
        unfolded = _unfolded(layer, given.detach(), g)
        if unfolded is None:
            continue
        a, g = unfolded  # (N, R, I), (c, N, R, O)
        start = offsets[weight]
        if not torch.allclose(
            torch.einsum("cnro,nri->ncoi", g, a).flatten(2),
            truth.data.jacobian[..., start : start + truth.sizes[weight]],
            atol=1e-9,
        ):
            continue
        if weight.replace("weight", "bias") in truth.sizes and layer.bias is not None:
            a = torch.cat([a, torch.ones_like(a[..., :1])], -1)
        used = torch.ones_like(a[..., 0])
        if getattr(case.likelihood, "ignore_index", None) is not None:  # positions that lead to no label do not count
            used = (torch.einsum("cnro,ncd->dnro", g, truth.output_curvature).abs().amax((0, 3)) > 0).double()
        inputs = torch.einsum("nri,nrj,nr->ij", a, a, used) / used.sum().clamp(min=1)
        outputs = torch.einsum("cnro,ncd,dnrp->op", g, truth.output_curvature, g)
        whole = torch.kron(outputs.contiguous(), inputs.contiguous())  # einsum may return a transposed matrix
        found[weight] = (whole, outputs, inputs)
    return found


def _unfolded(layer: nn.Module, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor] | None:
    """Inputs (N, R, I) and output gradients (c, N, R, O) at the positions of a layer; None for other convolutions."""
    if isinstance(layer, nn.Linear):
        return x.reshape(len(x), -1, x.shape[-1]), g.reshape(*g.shape[:2], -1, g.shape[-1])
    if layer.groups != 1 or isinstance(layer.padding, str):
        return None
    kernel, stride, padding, dilation = (
        tuple(v) for v in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    )
    if isinstance(layer, nn.Conv1d):
        x, kernel, stride, padding, dilation = x.unsqueeze(2), (1, *kernel), (1, *stride), (0, *padding), (1, *dilation)
    return F.unfold(x, kernel, dilation, padding, stride).mT, g.flatten(3).mT


def squared_chain_rule(truth: Truth) -> Tensor | None:
    """The approximate diagonal of a chain of linear layers and activations, written as a loop; None for others."""
    module, case = truth.case.net.module, truth.case
    if case.net.name != "mlp":
        return None
    x, taken = case.x, []
    for layer in module:
        taken.append((layer, x))
        x = layer(x).detach()
    m = truth.output_curvature.diagonal(dim1=1, dim2=2)
    found: dict[str, Tensor] = {}
    for number, (layer, x) in reversed(list(enumerate(taken))):
        if isinstance(layer, nn.Linear):
            found[f"{number}.weight"] = m.T @ x.square()
            found[f"{number}.bias"] = m.sum(0)
            m = m @ layer.weight.detach().square()
        else:
            leaf = x.clone().requires_grad_()
            (slope,) = torch.autograd.grad(layer(leaf).sum(), leaf)
            m = m * slope.square()
    return torch.cat([found[name].reshape(-1) for name in truth.sizes])
