"""Products with Jacobians and curvature matrices against the dense reference, over the zoo, in every way there is."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import weight_norm

import osculate as osc
from osculate.curvature import products, reference
from osculate.curvature.linearisation import Linearisation
from osculate.inputs import Inputs, call, count
from osculate.likelihoods import Likelihood
from osculate.parameters import Network, trainable
from tests.errors import says
from tests.laws import assert_close
from tests.zoo import VECTORS, ZOO

LIKELIHOODS: dict[str, Likelihood] = {
    "vector": osc.likelihoods.Categorical(),
    "sequence": osc.likelihoods.Categorical(),
    "image": osc.likelihoods.Gaussian(0.5),
}
#: Memory for one datum and one direction at a time, and for everything at once.
MEMORIES = (1, 2**28)


def problem(net: str, n: int = 3) -> tuple[nn.Module, Network, Inputs, Tensor, Likelihood]:
    model, x, likelihood = ZOO[net].model(), ZOO[net].x(n), LIKELIHOODS[ZOO[net].output]
    with torch.no_grad():
        y = likelihood.distribution(call(model, x)).sample()
    return model, Network(model, trainable(model)), x, y, likelihood


def directions(network: Network, count: int = 2) -> Tensor:
    return torch.randn(count, network.space.size, dtype=torch.double)


def ggn_product(
    network: Network, likelihood: Likelihood, x: Inputs, y: Tensor, v: Tensor, memory: int = 2**28
) -> Tensor:
    return products.gauss_newton_product(
        network, x, v, lambda f, part: products.output_hessian(likelihood, f, y[part]), memory
    )


@pytest.mark.parametrize("net", ZOO)
def test_jacobian_products_equal_the_dense_jacobian(net: str) -> None:
    model, network, x, *_ = problem(net)
    J, v = reference.jacobian(model, x), directions(network)
    at = Linearisation(network, x)
    forward = at.jvp(v)
    assert_close(at.f, call(model, x).detach())
    assert_close(forward.flatten(2), torch.einsum("ncp,sp->snc", J, v))
    assert_close(at.jvp(v[:1]), forward[:1])
    u = torch.randn_like(forward)
    assert_close(at.vjp(u), torch.einsum("snc,ncp->sp", u.flatten(2), J))


@pytest.mark.parametrize("net", ZOO)
def test_ggn_products_equal_the_dense_matrix(net: str) -> None:
    model, network, x, y, likelihood = problem(net)
    G, v = reference.ggn(model, likelihood, x, y), directions(network)
    for memory in MEMORIES:
        assert_close(ggn_product(network, likelihood, x, y, v, memory), v @ G)


#: Networks with an operation whose second derivative torch gets wrong.
WRONG = ("derived", "weight_norm")


@pytest.mark.parametrize("net", WRONG)
def test_second_derivatives_that_torch_gets_wrong_are_refused(net: str) -> None:
    _, network, x, y, likelihood = problem(net)
    with pytest.raises(RuntimeError, match=says("not symmetric", "weight normalisation", "curvature='ggn'")):
        products.hessian_product(network, likelihood, x, y, directions(network))


def test_wrong_second_derivatives_are_refused_where_the_first_parameter_has_a_right_one() -> None:
    model = nn.Sequential(weight_norm(nn.Linear(2, 2)), nn.Tanh(), nn.Linear(2, 1)).double()
    data = torch.randn(6, 2).double(), torch.ones(6, 1).double()
    with pytest.raises(RuntimeError, match=says("not symmetric", "curvature='ggn'")):
        osc.laplace(model, osc.likelihoods.Bernoulli(), data, structure="full", curvature="hessian", prior=1.0)


@pytest.mark.parametrize("net", [net for net in VECTORS if net not in WRONG])
def test_hessian_products_are_the_slope_of_the_gradient(net: str) -> None:
    """By finite differences: second derivatives of torch itself are not all right."""
    model, network, x, y, likelihood = problem(net)
    used = reference.jacobian(model, x).abs().sum((0, 1)) > 0  # a padding index has no gradient, but an influence
    v, step = directions(network) * used, 1e-5

    def gradient(theta: Tensor) -> Tensor:
        parts = {name: part.detach().requires_grad_() for name, part in network.space.unflatten(theta).items()}
        loss = -likelihood.log_prob(network(x, parts), y).sum()
        found = torch.autograd.grad(loss, list(parts.values()), materialize_grads=True, allow_unused=True)
        return torch.cat([part.reshape(-1) for part in found])

    expected = [(gradient(network.mean + step * w) - gradient(network.mean - step * w)) / (2 * step) for w in v]
    for memory in MEMORIES:
        assert_close(products.hessian_product(network, likelihood, x, y, v, memory), torch.stack(expected), 1e-5)


@pytest.mark.parametrize("net", ["mlp", "conv2d", "residual", "functional"])
def test_hessian_products_equal_the_dense_matrix(net: str) -> None:
    model, network, x, y, likelihood = problem(net)
    v = directions(network)
    expected = v @ reference.hessian(model, likelihood, x, y)
    assert_close(products.hessian_product(network, likelihood, x, y, v), expected)


def test_the_hessian_of_a_linear_network_is_its_ggn() -> None:
    _, network, x, y, likelihood = problem("linear")
    v = directions(network)
    assert_close(products.hessian_product(network, likelihood, x, y, v), ggn_product(network, likelihood, x, y, v))


@pytest.mark.parametrize("net", ["mlp", "conv2d", "residual", "cross_attention", "lstm", "resnet"])
def test_every_way_to_jacobian_products_gives_the_same(net: str) -> None:
    _, network, x, *_ = problem(net)
    at, v = Linearisation(network, x), directions(network)
    ways = (at._double_backward, torch.func.vmap(at._forward), lambda v: torch.stack([at._forward(one) for one in v]))
    first, *others = [way(v) for way in ways]
    for other in others:
        assert_close(other, first)


class Shy(torch.autograd.Function):
    """x², without forward mode, batching rule or second derivative."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: torch.autograd.function.FunctionCtx, g: Tensor) -> Tensor:
        if torch._C._functorch.is_batchedtensor(g):
            raise RuntimeError("no batching rule")
        return 2 * ctx.saved_tensors[0] * g


class Halfway(torch.autograd.Function):
    """x², with forward mode, and without second derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.square()

    @staticmethod
    def setup_context(ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: torch.autograd.function.FunctionCtx, g: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * g

    @staticmethod
    def jvp(ctx: torch.autograd.function.FunctionCtx, tangent: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * tangent


class Squared(nn.Module):
    def __init__(self, function: type[torch.autograd.Function] | None) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(4, 3).double(), function

    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(x)
        return self.function.apply(h) if self.function else h.square()


def squared(function: type[torch.autograd.Function] | None) -> Network:
    torch.manual_seed(0)
    return Network(Squared(function), ["linear.weight", "linear.bias"])


def test_operations_without_second_derivative_go_forward() -> None:
    x, v = torch.randn(5, 4, dtype=torch.double), torch.randn(3, 15, dtype=torch.double)
    assert_close(Linearisation(squared(Halfway), x).jvp(v), Linearisation(squared(None), x).jvp(v))


def test_operations_that_cannot_be_batched_go_one_by_one() -> None:
    x, u = torch.randn(5, 4, dtype=torch.double), torch.randn(3, 5, 3, dtype=torch.double)
    assert_close(Linearisation(squared(Shy), x).vjp(u), Linearisation(squared(None), x).vjp(u))


def test_a_derivative_that_is_silently_missing_is_noticed() -> None:
    """Reverse over reverse stops at an operation that is differentiable once, and reports zero."""
    x, v = torch.randn(5, 4, dtype=torch.double), torch.randn(3, 15, dtype=torch.double)
    at = Linearisation(squared(Shy), x)
    assert not bool(at._double_backward(v).any())
    with pytest.raises(RuntimeError, match="setup_context"):
        at.jvp(v)


@pytest.mark.parametrize("classes", [3, products.BLOCK + 1])
def test_output_hessians_equal_the_dense_ones_below_and_above_the_block(classes: int) -> None:
    f, y = torch.randn(4, classes, dtype=torch.double), torch.randint(classes, (4,))
    likelihood = osc.likelihoods.Categorical()
    u = torch.randn(2, 4, classes, dtype=torch.double)
    expected = torch.einsum("ncd,snd->snc", likelihood.hessian(f, y), u)
    assert_close(products.output_hessian(likelihood, f, y)(u), expected)


def test_large_outputs_take_no_matrix() -> None:
    """A hundred thousand classes: their squares would be 80 GB."""
    f, y = torch.randn(2, 100_000), torch.tensor([0, 7])
    p, u = f.softmax(-1), torch.randn(1, 2, 100_000)
    expected = p * u - p * (p * u).sum(-1, keepdim=True)
    assert_close(products.output_hessian(osc.likelihoods.Categorical(), f, y)(u), expected, 1e-4)


def test_a_padding_index_is_the_same_in_both_directions() -> None:
    """Forward mode follows the padding row, backward mode does not; products with G need one J."""
    _, network, x, *_ = problem("sequence", 5)
    at = Linearisation(network, x)
    many = directions(network)
    assert not torch.allclose(torch.func.vmap(at._forward)(many), at._double_backward(many))
    v, u = directions(network, 1), torch.randn(1, 5, 3, dtype=torch.double)
    forward, backward = at.jvp(v), at.vjp(u)
    assert_close((forward * u).sum(), (backward * v).sum())


def test_data_and_directions_are_cut_to_the_memory() -> None:
    _, network, x, *_ = problem("conv2d", 7)
    vectors, data = products.portions(network, x, 6, 1)
    assert len(vectors) == 6
    assert len(data) == count(x)
    one = 8 * network.space.size
    vectors, data = products.portions(network, x, 6, 4 * 3 * one)
    assert [part.stop - part.start for part in vectors] == [3, 3]
    assert [part.stop for part in data][-1] == 7


def test_products_with_all_data_share_one_graph() -> None:
    _, network, x, *_ = problem("conv2d", 7)
    kept = products.activations(network, x)
    memory = 5 * (4 * 8 * network.space.size) + 2 * 7 * 4 * kept
    vectors, data = products.portions(network, x, 5, memory, collected=True)
    assert len(vectors) > 1
    assert len(data) == 1
    assert len(products.portions(network, x, 5, memory)[1]) > 1


def test_half_precision_networks_give_single_precision_products() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    x, y = torch.randn(6, 4), torch.randint(3, (6,))
    network, half = Network(model, trainable(model)), Network(model.bfloat16(), trainable(model))
    v = torch.randn(2, network.space.size)
    likelihood = osc.likelihoods.Categorical()
    found = ggn_product(half, likelihood, x.bfloat16(), y, v)
    assert found.dtype == torch.float
    assert_close(found, ggn_product(network, likelihood, x, y, v), 0.05)
