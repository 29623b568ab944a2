"""Posteriors made of networks: what they mix, what they draw, and what they refuse."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.parameters import Network
from osculate.posteriors import Dropout, Ensemble, Point, Posterior, Snapshots
from tests.laws import assert_close

CLASSES = osc.likelihoods.Categorical()


def network(seed: int = 0, p: float = 0.4) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(p), nn.Linear(8, 3)).double().eval()


def inputs(n: int = 7) -> Tensor:
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(1), dtype=torch.double)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def snapshots(rank: int = 5, likelihood: osc.likelihoods.Likelihood = CLASSES) -> Snapshots:
    model = network(3)
    size = sum(p.numel() for p in model.parameters())
    torch.manual_seed(4)
    diagonal, deviations = 0.1 * torch.rand(size).double(), 0.3 * torch.randn(rank, size).double()
    return Snapshots(Network(model, [name for name, _ in model.named_parameters()]), likelihood, diagonal, deviations)


MADE: dict[str, Callable[[], Posterior]] = {
    "ensemble": lambda: Ensemble([network(n) for n in range(3)], CLASSES),
    "dropout": lambda: Dropout(network(), CLASSES),
    "snapshots": snapshots,
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_predictive_is_the_mixture_of_the_functions(make: Callable[[], Posterior]) -> None:
    q, x = make(), inputs()
    f = osc.sample_functions(q, x, samples=9, generator=seeded())
    assert f.shape == (3 if isinstance(q, Ensemble) else 9, 7, 3)
    assert float(f.std(0).min()) > 0
    assert_close(osc.predict(q, x, samples=9, generator=seeded()).probs, f.softmax(-1).mean(0), 1e-12)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_generator_decides_and_nothing_else_is_touched(make: Callable[[], Posterior]) -> None:
    q, x = make(), inputs()
    state, mode = torch.random.get_rng_state(), q.network(x)
    first = osc.predict(q, x, samples=9, generator=seeded()).probs
    assert torch.equal(state, torch.random.get_rng_state())
    torch.randn(5)
    assert torch.equal(first, osc.predict(q, x, samples=9, generator=seeded()).probs)
    assert torch.equal(mode, q.network(x))
    assert not any(layer.training for layer in q.model.modules())
    if not isinstance(q, Ensemble):
        assert not torch.equal(first, osc.predict(q, x, samples=9, generator=seeded(1)).probs)
        free = [osc.predict(q, x, samples=9).probs for _ in range(2)]
        assert not torch.equal(*free)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_another_type_predicts_the_same(make: Callable[[], Posterior]) -> None:
    q, x = make(), inputs()
    single = q.to(dtype=torch.float32)
    assert osc.predict(single, x.float(), generator=seeded()).probs.dtype == torch.float32
    if isinstance(q, Ensemble):
        assert_close(osc.predict(single, x.float()).probs, osc.predict(q, x).probs.float(), 1e-5)
    if isinstance(q, Snapshots):
        assert_close(single.variance(), q.variance().float(), 1e-6)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_what_belongs_to_a_gaussian_is_refused(make: Callable[[], Posterior]) -> None:
    q, x = make(), inputs()
    name = type(q).__name__
    data = (x, torch.zeros(7, dtype=torch.long))
    for ask in (
        lambda: osc.log_evidence(q),
        lambda: osc.maximise_evidence(q),
        lambda: osc.tune(q, data),
        lambda: osc.functional_variance(q, x),
        lambda: osc.evidence.effective_parameters(q),
    ):
        with pytest.raises(TypeError, match=f"Gaussian posterior, got {name}.*osc.laplace"):
            ask()
    with pytest.raises(ValueError, match=f"with a {name} posterior 'linearised'.*known: '{q.ways[0]}'"):
        osc.predict(q, x, via="linearised")
    with pytest.raises(ValueError, match="sample functions 'linearised'"):
        osc.sample_functions(q, x, via="linearised")
    with pytest.raises(ValueError, match="link='functions'"):
        osc.predict(q, x, link="functions")
    with pytest.raises(ValueError, match="samples must be a whole number of at least 1, got 0"):
        osc.sample_functions(q, x, samples=0)
    regression = Ensemble([network(n) for n in range(2)], osc.likelihoods.Gaussian())
    with pytest.raises(ValueError, match="joint predictives are Gaussian"):
        osc.predict(regression, x, joint="outputs")


def test_nothing_can_be_drawn_from_a_point() -> None:
    with pytest.raises(TypeError, match="Point posterior has a single function"):
        osc.sample_functions(Point(network(), CLASSES), inputs())


# ---- ensembles -------------------------------------------------------------------------------------------------


def test_an_ensemble_of_regressors_has_the_moments_of_the_mixture() -> None:
    models, x = [network(n) for n in range(4)], inputs()
    found = osc.predict(Ensemble(models, osc.likelihoods.Gaussian(0.5)), x)
    f = torch.stack([model(x).detach() for model in models])
    assert_close(found.mean, f.mean(0), 1e-12)
    assert_close(found.variance, 0.25 + f.var(0, correction=0), 1e-12)


def test_members_are_copies_with_buffers_of_their_own() -> None:
    models = [nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double() for _ in range(2)]
    for n, model in enumerate(models):
        model(inputs() + n)
        model.eval()
    q, x = Ensemble(models, CLASSES), inputs()
    expected = torch.stack([model(x).softmax(-1) for model in models]).mean(0).detach()
    assert_close(osc.predict(q, x).probs, expected, 1e-12)
    models[0][0].weight.data.zero_()
    models[1][1].running_mean.add_(5)
    assert_close(osc.predict(q, x).probs, expected, 1e-12)


def test_networks_that_are_no_ensemble_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two members, got 1"):
        Ensemble([network()], CLASSES)
    with pytest.raises(ValueError, match=r"member 1 .* '0.weight' has shape \(8, 5\), not \(8, 4\)"):
        Ensemble([network(), nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))], CLASSES)
    with pytest.raises(ValueError, match="members 0 and 2 of the ensemble have equal weights"):
        Ensemble([network(0), network(1), network(0)], CLASSES)
    with pytest.raises(ValueError, match="dropout layer '2' is active"):
        Ensemble([network(0), network(1).train()], CLASSES)


# ---- dropout ---------------------------------------------------------------------------------------------------


def test_passes_have_the_mean_and_variance_of_the_masks() -> None:
    """A linear layer behind dropout, a mask for each datum: E f = W x + b and Var f = p/(1-p) (W∘W)(x∘x)."""
    model = nn.Sequential(nn.Dropout(0.3), nn.Linear(4, 2)).double()
    x = inputs()
    q, often = Dropout(model, osc.likelihoods.Gaussian()), x.repeat(500, 1)
    f = osc.sample_functions(q, often, samples=20, generator=seeded()).reshape(20 * 500, 7, 2)
    model.eval()
    assert_close(f.mean(0), model(x).detach(), 0.03)
    assert_close(f.var(0), (0.3 / 0.7) * x.square() @ model[1].weight.detach().square().T, 0.1)


def test_without_dropout_the_mode_remains() -> None:
    q, x = Dropout(network().train(), CLASSES), inputs()
    assert_close(osc.predict(q, x, via="mode").probs, osc.predict(Point(network(), CLASSES), x).probs, 1e-12)


def test_normalisations_keep_their_statistics() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)).double()
    model(inputs())
    q = Dropout(model, CLASSES)
    before = {name: value.clone() for name, value in q.model.state_dict().items()}
    alone = torch.cat([osc.sample_functions(q, row, samples=200, generator=seeded()) for row in inputs(3).split(1)], 1)
    assert_close(alone.mean(0), model.eval()(inputs(3)).detach(), 0.3)
    assert all(torch.equal(value, before[name]) for name, value in q.model.state_dict().items())


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_the_fused_path_of_transformers_is_not_taken() -> None:
    """In evaluation mode torch's encoder layer runs one fused operation, which has no dropout."""
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(12, 3)).double()
    f = osc.sample_functions(Dropout(model, CLASSES), inputs(6).reshape(2, 3, 4), samples=4, generator=seeded())
    assert float(f.std(0).min()) > 0


@pytest.mark.parametrize(
    "model", [nn.Linear(4, 3), network(p=0.0), nn.LSTM(4, 3, dropout=0.0)], ids=["linear", "p=0", "lstm"]
)
def test_a_network_without_dropout_is_refused(model: nn.Module) -> None:
    with pytest.raises(ValueError, match="no dropout layer with p > 0"):
        Dropout(model, CLASSES)


# ---- snapshots -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 2, 5])
def test_draws_have_the_mean_and_the_covariance(rank: int) -> None:
    q = snapshots(rank)
    theta = q.sample(20_000, seeded())
    covariance = q.diagonal.diag()
    if rank:
        covariance = 0.5 * (covariance + q.deviations.T @ q.deviations / (rank - 1))
    assert_close(q.variance(), covariance.diagonal(), 1e-12)
    assert_close(theta.mean(0), q.mean, 0.02)
    assert_close(theta.T.cov(), covariance, 0.06)


def test_each_draw_has_random_numbers_of_its_own() -> None:
    q, generator = snapshots(), seeded()
    assert_close(q.sample(3, seeded()), torch.cat([q.sample(1, generator) for _ in range(3)]), 1e-12)


def test_batch_normalisation_has_no_statistics_for_sampled_weights() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double().eval()
    size = sum(p.numel() for p in model.parameters())
    q = Snapshots(
        Network(model, [name for name, _ in model.named_parameters()]),
        CLASSES,
        torch.ones(size, dtype=torch.double),
        torch.zeros(0, size, dtype=torch.double),
    )
    assert q.variance().shape == (size,)
    with pytest.raises(ValueError, match="batch normalisation '1' keeps statistics.*GroupNorm"):
        osc.predict(q, inputs())
