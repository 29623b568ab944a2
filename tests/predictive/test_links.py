"""Links: each against Monte Carlo, in its limits, and for outputs of every shape."""

import pytest
import torch

import osculate as osc
from osculate.predictive import link as links
from tests.laws import assert_close


def random_logits(classes: int, scale: float, count: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    mean = 2 * torch.randn(count, classes, dtype=torch.double)
    a = torch.randn(count, classes, classes, dtype=torch.double)
    covariance = a @ a.mT
    return mean, scale * covariance / covariance.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]


def by_brute_force(likelihood, mean, covariance, samples: int = 1_000_000) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(samples // 100, mean.shape[-1], generator=generator, dtype=mean.dtype)
    root = torch.linalg.cholesky(covariance)
    total = torch.zeros_like(mean)
    for _ in range(100):
        noise.normal_(generator=generator)
        total += torch.stack([likelihood.response(m + noise @ r.T).mean(0) for m, r in zip(mean, root, strict=True)])
    return total / 100


@pytest.mark.parametrize("variance", [0.1, 1.0, 5.0, 25.0])
def test_probit_is_within_two_hundredths_of_a_million_samples(variance: float) -> None:
    likelihood = osc.likelihoods.Bernoulli()
    mean = torch.linspace(-8, 8, 9, dtype=torch.double).unsqueeze(1)
    covariance = torch.full((9, 1, 1), variance, dtype=torch.double)
    found = links.Probit()(likelihood, mean, covariance.squeeze(-1))
    assert float((found - by_brute_force(likelihood, mean, covariance)).abs().max()) < 0.02


@pytest.mark.parametrize("variance", [0.1, 1.0, 25.0])
def test_quasi_monte_carlo_converges_to_a_million_samples(variance: float) -> None:
    """Within 0.02 with the default 256 points, and faster than plain sampling, whose error would fall by a quarter."""
    likelihood = osc.likelihoods.Categorical()
    mean, covariance = random_logits(5, variance, count=6)
    truth = by_brute_force(likelihood, mean, covariance)
    coarse, fine = (
        float((links.MonteCarlo(points)(likelihood, mean, covariance) - truth).abs().max()) for points in (256, 4096)
    )
    assert coarse < 0.02
    assert fine < max(coarse / 4, 0.001)  # a million samples are themselves exact to 0.0005 only


def integrated(link: str, mean: torch.Tensor, covariance: torch.Tensor) -> torch.Tensor:
    """The probabilities of four classes by this link, which gets the part of the covariance that it asks for."""
    likelihood, chosen = osc.likelihoods.Categorical(), links.REGISTRY[link]()
    if not likelihood.needs_covariance(chosen):
        covariance = covariance.diagonal(dim1=-2, dim2=-1)
    return likelihood.marginal(mean, covariance, chosen).probs


def test_one_output_at_a_time_needs_only_variances() -> None:
    likelihood = osc.likelihoods.Bernoulli()
    mean, covariance = random_logits(3, 4.0, count=5)
    truth = by_brute_force(likelihood, mean, covariance)
    found = likelihood.marginal(mean, covariance.diagonal(dim1=-2, dim2=-1), links.MonteCarlo()).probs
    assert float((found - truth).abs().max()) < 0.002


@pytest.mark.parametrize("link", links.REGISTRY)
def test_every_link_gives_probabilities_and_the_network_itself_without_uncertainty(link: str) -> None:
    mean, covariance = random_logits(4, 3.0)
    p = integrated(link, mean, covariance)
    assert bool((p >= 0).all())
    assert_close(p.sum(-1), torch.ones(len(p), dtype=p.dtype))
    if link != "bridge":  # the bridge matches a Dirichlet, which is not the softmax at the mean
        certain = integrated(link, mean, 1e-12 * covariance)
        assert_close(certain, mean.softmax(-1), 1e-4)


@pytest.mark.parametrize("link", links.REGISTRY)
def test_every_link_moves_towards_uniform_as_the_uncertainty_grows(link: str) -> None:
    mean, covariance = random_logits(4, 1.0)
    probabilities = [integrated(link, mean, s * covariance) for s in (1.0, 10.0, 100.0)]
    entropies = [torch.distributions.Categorical(probs=p).entropy().mean() for p in probabilities]
    assert entropies[0] < entropies[1] < entropies[2]


@pytest.mark.parametrize("link", ["mc", "mean_field"])
def test_links_that_use_correlations_ignore_a_common_shift_of_all_logits(link: str) -> None:
    mean, covariance = random_logits(4, 1.0)
    shifted = integrated(link, mean, covariance + 30.0)
    assert float((shifted - integrated(link, mean, covariance)).abs().max()) < 0.02


def test_singular_covariances_are_integrated_too() -> None:
    mean = torch.randn(3, 4)
    p = links.MonteCarlo()(osc.likelihoods.Categorical(), mean, torch.zeros(3, 4, 4))
    assert_close(p, mean.softmax(-1), 1e-5)


@pytest.mark.parametrize("link", links.REGISTRY)
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_prediction_does_not_depend_on_what_shares_its_batch(link: str, outputs: int, dtype: torch.dtype) -> None:
    """Neither on an outlier, nor on an input with no variance at all, which this net without a bias has at zero."""
    likelihood = osc.likelihoods.Categorical() if outputs > 1 else osc.likelihoods.Bernoulli()
    if outputs == 1 and link in ("bridge", "mean_field"):
        pytest.skip("a link for several classes")
    net, x = torch.nn.Linear(4, outputs, bias=False).to(dtype), torch.randn(30, 4, dtype=dtype)
    y = torch.randint(3, (30,)) if outputs > 1 else torch.randint(2, (30, 1)).to(dtype)
    q = osc.laplace(net, likelihood, (x, y), structure="full", prior=0.05, refine=False)
    new = 3 * torch.randn(5, 4, dtype=dtype)
    others = torch.stack([torch.full((4,), 1e4, dtype=dtype), torch.zeros(4, dtype=dtype)])
    alone = torch.cat([osc.predict(q, one, link=link).probs for one in new.split(1)])
    together = osc.predict(q, torch.cat([others, new]), link=link).probs
    assert_close(together[2:], alone, 1e-5 if dtype == torch.float32 else 1e-10)
    assert_close(together[1], torch.full_like(together[1], 1 / max(2, outputs)), 1e-6)


def test_a_common_shift_of_all_logits_leaves_the_bridge_what_the_network_says() -> None:
    """Nothing is left of such a covariance but rounding, which must not tell the classes apart."""
    mean, covariance = 0.1 * torch.randn(40, 4), torch.ones(40, 4, 4) * torch.logspace(-3, 3, 40)[:, None, None]
    assert_close(integrated("bridge", mean, covariance), integrated("bridge", mean, torch.zeros(40, 4, 4)), 1e-5)


@pytest.mark.parametrize("link", links.REGISTRY)
@pytest.mark.parametrize("axis", [1, 2, -1])
def test_positions_are_integrated_each_by_itself_wherever_the_class_axis_is(link: str, axis: int) -> None:
    mean, covariance = random_logits(4, 1.0, count=2 * 3 * 5)
    chosen = links.REGISTRY[link]()
    expected = integrated(link, mean, covariance).reshape(2, 3, 5, 4)
    likelihood = osc.likelihoods.Categorical(class_axis=axis)
    shaped = mean.reshape(2, 3, 5, 4).movedim(-1, axis)
    given = covariance.reshape(2, 15, 4, 4)
    if not likelihood.needs_covariance(chosen):
        given = likelihood.merge(given.diagonal(dim1=-2, dim2=-1), shaped.shape)
    assert_close(likelihood.marginal(shaped, given, chosen).probs, expected)


@pytest.mark.parametrize("link", ["probit", "mc"])
def test_masks_of_any_shape_are_integrated_pixel_by_pixel(link: str) -> None:
    likelihood, chosen = osc.likelihoods.Bernoulli(), links.REGISTRY[link]()
    mean, variance = torch.randn(2, 1, 3, 4), torch.rand(2, 1, 3, 4)
    found = likelihood.marginal(mean, variance, chosen).probs
    expected = likelihood.marginal(mean.reshape(-1, 1), variance.reshape(-1, 1), chosen).probs
    assert_close(found.reshape(-1, 1), expected)


def test_chunks_of_positions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    mean, covariance = random_logits(4, 1.0, count=7)
    whole = integrated("mc", mean, covariance)
    monkeypatch.setattr("osculate.predictive.link.NUMBERS", 3 * 4 * 256)
    assert_close(integrated("mc", mean, covariance), whole)


def test_the_bridge_is_far_less_accurate_than_the_other_links() -> None:
    generator = torch.Generator().manual_seed(0)
    errors: dict[str, list[float]] = {"bridge": [], "mean_field": [], "mc": []}
    for deviation in (0.5, 1.0, 2.0, 4.0):
        for _ in range(10):
            mean = 2 * torch.randn(1, 3, generator=generator, dtype=torch.double)
            root = deviation * torch.randn(3, 3, generator=generator, dtype=torch.double) / 3**0.5
            draws = mean + torch.randn(20_000, 3, generator=generator, dtype=torch.double) @ root.T
            truth, covariance = draws.softmax(-1).mean(0), (root @ root.T).unsqueeze(0)
            for name, found in errors.items():
                probs = links.REGISTRY[name]()(osc.likelihoods.Categorical(), mean, covariance)
                found.append(float((probs - truth).abs().max()))
    average = {name: sum(found) / len(found) for name, found in errors.items()}
    assert average["bridge"] > 3 * max(average["mean_field"], average["mc"])
