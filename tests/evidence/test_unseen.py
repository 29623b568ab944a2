"""The evidence of networks with parameters that the data do not see, beside the same networks without them."""

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn

import osculate as osc

STRUCTURES = ["full", "block", "kron", "diag", "low_rank", "dual"]
PRIORS = {
    "isotropic": osc.priors.Isotropic(1.0),
    "layerwise": osc.priors.Layerwise(1.0),
    "weights and biases": osc.priors.Grouped(
        {"weights": ["0.weight", "2.weight", "4.weight"], "biases": ["0.bias", "2.bias", "4.bias"]}, 1.0
    ),
}


def trained(act: type[nn.Module]) -> tuple[nn.Sequential, tuple[Tensor, Tensor]]:
    """A network with two hidden layers, and data of three classes that it was trained on."""
    torch.manual_seed(0)
    x = torch.randn(60, 4, dtype=torch.double)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.3).long()
    model = nn.Sequential(nn.Linear(4, 8), act(), nn.Linear(8, 6), act(), nn.Linear(6, 3)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model, (x, y)


def widened(model: nn.Sequential, units: int, bias: float) -> nn.Sequential:
    """The same function with further units in both hidden layers, whose biases put them at a limit of the activation.

    Where the limit is zero the next layer has random weights for them. Elsewhere they are further biases, which share
    that of the next layer evenly, as training with weight decay would have it.
    """
    generator = torch.Generator().manual_seed(1)
    wide = copy.deepcopy(model)
    for layer in (0, 2):
        here, after = wide[layer], wide[layer + 2]
        extra = torch.randn(units, here.in_features, generator=generator, dtype=torch.double)
        here.weight = nn.Parameter(torch.cat([here.weight, extra]))
        here.bias = nn.Parameter(torch.cat([here.bias, torch.full((units,), bias, dtype=torch.double)]))
        limit = wide[layer + 1](torch.tensor(bias, dtype=torch.double))
        share = after.bias.detach() / (1 + units * limit**2)
        added = torch.randn(after.out_features, units, generator=generator, dtype=torch.double)
        if bool(limit.abs() > 1e-9):
            added = (limit * share).unsqueeze(1).expand(-1, units)
        after.weight, after.bias = nn.Parameter(torch.cat([after.weight, added], 1)), nn.Parameter(share)
        here.out_features, after.in_features = here.out_features + units, after.in_features + units
    return wide


def best_evidence(model: nn.Module, data: tuple[Tensor, Tensor], structure: str, prior: osc.priors.Prior) -> float:
    q = osc.laplace(model, osc.likelihoods.Categorical(), data, structure=structure, prior=prior, refine=False)
    return float(osc.log_evidence(osc.maximise_evidence(q)))


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("prior", PRIORS)
def test_units_that_are_off_do_not_change_the_evidence(structure: str, prior: str) -> None:
    model, data = trained(nn.ReLU)
    wide = widened(model, 3, -100.0)
    torch.testing.assert_close(wide(data[0]), model(data[0]))
    narrow, other = (best_evidence(each, data, structure, PRIORS[prior]) for each in (model, wide))
    assert other == pytest.approx(narrow, abs=0.01)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("prior", PRIORS)
def test_units_at_the_lower_limit_of_a_sigmoid_do_not_change_the_evidence(structure: str, prior: str) -> None:
    model, data = trained(nn.Sigmoid)
    wide = widened(model, 3, -100.0)
    narrow, other = (best_evidence(each, data, structure, PRIORS[prior]) for each in (model, wide))
    assert other == pytest.approx(narrow, abs=0.01)


#: Nats by which a saturated unit in each hidden layer, whose outputs are a further bias, may change the evidence. It is
#: then another prior over the bias; approximations that drop correlations count it as a parameter of its own.
FURTHER_BIAS = {"full": 1.0, "block": 1.0, "low_rank": 1.0, "dual": 1.0, "kron": 1.5, "diag": 6.0}


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize(("act", "bias"), [(nn.Tanh, 100.0), (nn.Tanh, -50.0), (nn.Sigmoid, 100.0)])
def test_a_saturated_unit_counts_as_a_further_bias(structure: str, act: type[nn.Module], bias: float) -> None:
    model, data = trained(act)
    wide = widened(model, 1, bias)
    torch.testing.assert_close(wide(data[0]), model(data[0]))
    for prior in PRIORS.values():
        narrow, other = (best_evidence(each, data, structure, prior) for each in (model, wide))
        assert other == pytest.approx(narrow, abs=FURTHER_BIAS[structure])


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("delta", [1e-4, 1.0, 1e4])
def test_a_layer_that_is_off_leaves_its_precision_without_effect(structure: str, delta: float) -> None:
    model, (x, y) = trained(nn.ReLU)
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
    precision = torch.ones(6, dtype=torch.double)

    def evidence(first: float) -> Tensor:
        prior = osc.priors.Layerwise(torch.cat([torch.full((2,), first, dtype=torch.double), precision[2:]]))
        return osc.log_evidence(
            osc.laplace(model, osc.likelihoods.Categorical(), (x, y), structure=structure, prior=prior, refine=False)
        )

    torch.testing.assert_close(evidence(delta), evidence(1.0), atol=1e-6, rtol=0)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_every_structure_sees_the_parameters_with_a_derivative(structure: str) -> None:
    model, data = trained(nn.ReLU)
    wide = widened(model, 2, -100.0)
    q = osc.laplace(wide, osc.likelihoods.Categorical(), data, structure=structure, prior=1.0, refine=False)
    rows = torch.zeros(q.mean.numel(), dtype=torch.bool)
    for n in range(len(data[0])):
        for f in wide(data[0][n]):
            slopes = torch.autograd.grad(f, list(wide.parameters()), retain_graph=True)
            rows |= torch.cat([slope.reshape(-1) for slope in slopes]) != 0
    assert torch.equal(q.seen, rows) if structure != "kron" else bool((q.seen >= rows).all())
    assert 0 < int((~q.seen).sum()) < len(q.mean)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("mode", ["network", "linear"])
def test_inputs_that_are_always_zero_do_not_change_the_evidence_of_regression(structure: str, mode: str) -> None:
    """With Gaussian noise and a linear layer the evidence is that of regression on the inputs that vary."""
    torch.manual_seed(0)
    x = torch.randn(20, 3, dtype=torch.double)
    y = x @ torch.tensor([[1.0], [-0.5], [0.2]], dtype=torch.double)
    both = torch.cat([x, torch.zeros(20, 2, dtype=torch.double)], 1)
    found = []
    for inputs in (x, both):
        layer = nn.Linear(inputs.shape[1], 1, bias=False).double()
        with torch.no_grad():
            layer.weight[:, :3] = torch.linalg.lstsq(x, y).solution.T
            layer.weight[:, 3:] = 100.0
        q = osc.laplace(layer, osc.likelihoods.Gaussian(0.5), (inputs, y), structure=structure, prior=2.0, refine=False)
        found.append(osc.log_evidence(q, mode=mode))
    tolerance = 1e-9 if mode == "network" else 0.02  # nats to which the mode is searched
    torch.testing.assert_close(found[0], found[1], atol=tolerance, rtol=0)


def test_a_network_that_sees_nothing_of_its_data_is_named() -> None:
    model, data = trained(nn.ReLU)
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
    q = osc.laplace(model, osc.likelihoods.Categorical(), data, structure="diag", prior=osc.priors.Layerwise(3.0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tuned = osc.maximise_evidence(q)
    text = " ".join(str(each.message) for each in caught)
    assert "does not depend on the prior precision for 0.weight, 0.bias" in text
    assert tuned.prior.precision[:2].tolist() == pytest.approx([3.0, 3.0])
