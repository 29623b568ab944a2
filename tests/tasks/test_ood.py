"""Out-of-distribution detection: scores are what they say, and higher where the posterior knows nothing."""

from typing import Any

import pytest
import torch
from sympy import Matrix, eye
from torch import nn

import osculate as osc
from osculate import metrics
from osculate.autoencoders import Autoencoder, LaplacianAutoencoder, Representation
from osculate.tasks import _inputs, calibration, ood
from osculate.tasks._inputs import TrainingInputs
from tests.errors import says

INSIDE = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
OUTSIDE = 6 * torch.randn(30, 3, generator=torch.Generator().manual_seed(1))
LABELS = (INSIDE[:, 0] > 0).long()


@pytest.fixture
def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))


@pytest.fixture
def q(net: nn.Module) -> Any:
    return osc.laplace(net, osc.likelihoods.Categorical(), (INSIDE, LABELS), structure="diag", prior=1.0, refine=False)


def test_scores_are_those_of_the_predictive(q: Any) -> None:
    record = ood(q, INSIDE, OUTSIDE, batch_size=7)
    p = osc.predict(q, INSIDE).probs
    assert torch.allclose(record.inside["entropy"], -(p * p.log()).sum(1), atol=1e-5)
    assert torch.allclose(record.inside["max_probability"], 1 - p.max(1).values, atol=1e-5)
    variance = osc.functional_variance(q, OUTSIDE, diagonal=True).sum(1)
    assert torch.allclose(record.outside["outside"]["functional_variance"], variance, rtol=1e-4)


def test_auroc_compares_each_set_with_the_inside(q: Any) -> None:
    record = ood(q, INSIDE, {"far": OUTSIDE, "same": INSIDE})
    assert set(record.metrics()) == {
        f"{kind}/{name}/{score}"
        for kind in ("auroc", "auprc")
        for name in ("far", "same")
        for score in ("entropy", "max_probability", "functional_variance")
    }
    for score, value in record.auroc["same"].items():
        assert value == pytest.approx(0.5), score
        far = metrics.auroc(record.inside[score], record.outside["far"][score])
        assert record.auroc["far"][score] == pytest.approx(far)
        pair = record.inside[score], record.outside["far"][score]
        assert record.auprc["far"][score] == record.metrics()[f"auprc/far/{score}"] == metrics.auprc(*pair)
        assert record.auroc_error["far"][score] == metrics.auroc_error(*pair) > 0
        assert record.auprc_error["far"][score] == metrics.auprc_error(*pair) > 0


def test_the_variance_grows_away_from_the_data(q: Any) -> None:
    assert ood(q, INSIDE, OUTSIDE).auroc["outside"]["functional_variance"] > 0.8


def test_images_of_outputs_have_one_score_an_input() -> None:
    net, x = nn.Conv2d(1, 2, 3), torch.randn(5, 1, 6, 4)
    likelihood = osc.likelihoods.Categorical(class_axis=1)
    q = osc.laplace(net, likelihood, (x, torch.randint(2, (5, 4, 2))), structure="diag", prior=1.0, refine=False)
    record = ood(q, x, 3 * x, scores=("entropy", "functional_variance"))
    expected = osc.functional_variance(q, x, diagonal=True).sum((1, 2, 3))
    assert torch.allclose(record.inside["functional_variance"], expected, rtol=1e-4)
    assert record.inside["entropy"].shape == (5,)


def test_a_point_has_no_functional_variance(net: nn.Module) -> None:
    point = osc.posteriors.Point(net, osc.likelihoods.Categorical())
    assert set(ood(point, INSIDE, OUTSIDE).inside) == {"entropy", "max_probability"}
    with pytest.raises(TypeError, match=says("Point", "Gaussian")):
        ood(point, INSIDE, OUTSIDE, scores=("functional_variance",))


def test_regression_has_no_most_probable_class() -> None:
    y = INSIDE.sum(1, keepdim=True)
    q = osc.laplace(
        nn.Linear(3, 1), osc.likelihoods.Gaussian(0.5), (INSIDE, y), structure="full", prior=1.0, refine=False
    )
    record = ood(q, INSIDE, OUTSIDE)
    assert set(record.inside) == {"entropy", "functional_variance"}
    # for one Gaussian output, entropy is monotone in the variance
    assert record.auroc["outside"]["entropy"] == pytest.approx(record.auroc["outside"]["functional_variance"], abs=1e-3)
    with pytest.raises(ValueError, match=says("max_probability", "Normal")):
        ood(q, INSIDE, OUTSIDE, scores=("max_probability",))
    with pytest.raises(ValueError, match=says("entropy", "linearised")):
        ood(q, INSIDE, OUTSIDE, scores=("entropy",), via="sampled", samples=3)


@pytest.mark.parametrize(
    ("likelihood", "outputs", "options"),
    [
        (osc.likelihoods.Poisson(), 1, {}),
        (osc.likelihoods.StudentT(), 1, {}),
        (osc.likelihoods.HeteroscedasticGaussian(), 2, {}),
        (osc.likelihoods.Gaussian(), 1, {"via": "sampled", "samples": 3}),
    ],
    ids=["poisson", "student_t", "heteroscedastic", "sampled"],
)
def test_an_entropy_without_closed_form_is_left_out_of_the_default(likelihood: Any, outputs: int, options: Any) -> None:
    y = INSIDE.abs().sum(1, keepdim=True).round()
    q = osc.laplace(nn.Linear(3, outputs), likelihood, (INSIDE, y), structure="full", prior=1.0, refine=False)
    record = ood(q, INSIDE, OUTSIDE, **options)
    assert set(record.inside) == {"functional_variance"}
    expected = osc.functional_variance(q, INSIDE, diagonal=True).sum(1)
    assert torch.allclose(record.inside["functional_variance"], expected, rtol=1e-4)
    with pytest.raises(ValueError, match=says("no entropy in closed form", "'functional_variance'")):
        ood(q, INSIDE, OUTSIDE, scores=("entropy",), **options)


def test_a_point_that_has_no_score_says_so() -> None:
    point = osc.posteriors.Point(nn.Linear(3, 1), osc.likelihoods.Poisson())
    with pytest.raises(ValueError, match=says("none of the scores", "Poisson", "Point", "osc.metrics.auroc")):
        ood(point, INSIDE, OUTSIDE)


def test_bernoulli_outputs_are_scored_together() -> None:
    net = nn.Linear(3, 2)
    record = ood(osc.posteriors.Point(net, osc.likelihoods.Bernoulli()), INSIDE, OUTSIDE)
    p = net(INSIDE).sigmoid()
    assert torch.allclose(record.inside["max_probability"], 1 - torch.maximum(p, 1 - p).prod(1), atol=1e-6)
    entropy = torch.distributions.Bernoulli(p).entropy().sum(1)
    assert torch.allclose(record.inside["entropy"], entropy, atol=1e-5)


def test_certain_predictions_have_no_entropy_and_no_nan() -> None:
    net = nn.Linear(1, 2, bias=False)
    net.weight.data = torch.tensor([[500.0], [-500.0]])
    point = osc.posteriors.Point(net, osc.likelihoods.Categorical())
    assert torch.equal(ood(point, torch.ones(3, 1), torch.ones(2, 1)).inside["entropy"], torch.zeros(3))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda q: ood(q, INSIDE, OUTSIDE, scores=("entropie",)), ["'entropie'", "'entropy'"]),
        (lambda q: ood(q, INSIDE, {}), ["no outside inputs"]),
        (lambda q: ood(q, INSIDE, OUTSIDE[:0], scores=("entropy",)), ["empty"]),
        (lambda q: ood(q, INSIDE, OUTSIDE / 0), ["row 0", "outside inputs", "inf"]),
        (lambda q: ood(q, INSIDE[:0], OUTSIDE), ["inside inputs are empty"]),
        (lambda q: ood(q, INSIDE, {"a": OUTSIDE, "b": OUTSIDE[:0]}), ["'b' are empty"]),
        (lambda q: ood(q, INSIDE, OUTSIDE, batch_size=0), ["batch_size must be", "got 0"]),
        (lambda q: ood(None, INSIDE, OUTSIDE, scores="entropy"), ["'entropy'", "pass a posterior", "'mean_pixel'"]),
        (lambda q: ood(q, INSIDE, OUTSIDE, scores="nll"), ["'nll'", "Autoencoder", "'max_probability'"]),
        (lambda q: ood(None, INSIDE, OUTSIDE, scores="leverage"), ["'leverage'", "train=x", "'mean_pixel'"]),
        (lambda q: ood(q, INSIDE[0, 0], OUTSIDE), ["inside inputs are one number"]),
    ],
)
def test_what_cannot_be_scored_is_explained(q: Any, call: Any, words: list[str]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        call(q)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda q: ood(q, (INSIDE, LABELS), OUTSIDE), ["inside inputs are a tuple", "without targets"]),
        (lambda q: ood(q, INSIDE, [("a", OUTSIDE)]), ["outside is a list", "dict"]),
        (lambda q: ood(q, INSIDE, {"a": OUTSIDE.numpy()}), ["'a' are a ndarray", "torch.as_tensor"]),
        (lambda q: ood(q, INSIDE, OUTSIDE.to(torch.uint8)), ["outside inputs", "uint8", "float32", "units"]),
        (lambda q: ood(q, INSIDE, OUTSIDE, train=[INSIDE]), ["training inputs are a list"]),
        (lambda q: ood(None, INSIDE, OUTSIDE, link="probit"), ["'link'", "inputs alone"]),
        (lambda q: ood(q.model, INSIDE, OUTSIDE), ["expected a posterior", "Sequential"]),
    ],
)
def test_what_is_not_a_tensor_of_inputs_is_named(
    q: Any, call: Any, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # users run without checks of types
    with pytest.raises(TypeError, match=says(*words)):
        call(q)


def test_one_score_may_be_named_alone(q: Any) -> None:
    assert set(ood(q, INSIDE, OUTSIDE, scores="entropy").inside) == {"entropy"}


def test_inputs_are_scored_without_a_network(q: Any) -> None:
    alone = ood(None, INSIDE, OUTSIDE, train=INSIDE, batch_size=7)
    beside = ood(q, INSIDE, OUTSIDE, train=INSIDE)
    assert set(alone.inside) == set(beside.inside) - {"entropy", "max_probability", "functional_variance"}
    assert all(alone.auroc["outside"][score] == beside.auroc["outside"][score] for score in alone.inside)
    assert set(ood(None, INSIDE[:, 0], OUTSIDE[:, 0]).inside) == {"mean_pixel"}


@pytest.mark.parametrize("kind", ["ensemble", "dropout", "snapshots"])
def test_posteriors_made_of_samples_are_scored_too(kind: str) -> None:
    q, way = made_of_samples(kind)
    record = ood(q, INSIDE, OUTSIDE, samples=3)
    assert set(record.auroc["outside"]) == {"entropy", "max_probability"}
    assert record.inside["entropy"].isfinite().all()
    assert q.ways[0] == way
    with pytest.raises(TypeError, match="Gaussian posterior, got"):
        ood(q, INSIDE, OUTSIDE, scores=("functional_variance",))


@pytest.mark.parametrize("kind", ["ensemble", "dropout", "snapshots"])
def test_posteriors_made_of_samples_are_compared_with_targets(kind: str) -> None:
    q, _ = made_of_samples(kind)
    generator = torch.Generator().manual_seed(0)
    record = calibration(q, (INSIDE, LABELS), batch_size=40, samples=3, generator=generator)
    probs = osc.predict(q, INSIDE, samples=3, generator=torch.Generator().manual_seed(0)).probs
    assert torch.allclose(record.probs, probs.double())


def test_all_batches_are_predicted_by_the_same_sampled_weights() -> None:
    q, _ = made_of_samples("snapshots")
    data = (torch.cat([INSIDE[:8], INSIDE[:8]]), torch.cat([LABELS[:8], LABELS[:8]]))
    probs = calibration(q, data, batch_size=8, samples=2).probs
    assert torch.allclose(probs[:8], probs[8:])


def made_of_samples(kind: str) -> tuple[Any, str]:
    nets = [nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 2)).eval() for _ in range(3)]
    likelihood = osc.likelihoods.Categorical()
    if kind == "ensemble":
        return osc.posteriors.Ensemble(nets, likelihood), "members"
    if kind == "dropout":
        return osc.posteriors.Dropout(nets[0], likelihood), "dropout"
    network = osc.parameters.Network(nets[0], [name for name, _ in nets[0].named_parameters()])
    return osc.posteriors.Snapshots(network, likelihood, torch.rand(38), torch.randn(4, 38)), "sampled"


def images(n: int, seed: int) -> torch.Tensor:
    """Digits-like rows of 3 × 4 pixels, whose last column is never lit."""
    x = torch.rand(n, 3, 4, generator=torch.Generator().manual_seed(seed))
    x[..., -1] = 0
    return x


def test_scores_of_the_input_alone() -> None:
    train, x = images(30, 0), torch.rand(5, 3, 4)
    score = TrainingInputs(train)
    rows, new = train.flatten(1).double(), x.flatten(1).double()
    assert score.unlit.reshape(3, 4).nonzero()[:, 1].unique().tolist() == [3]
    torch.testing.assert_close(score.unlit_pixels(x), x[..., -1].double().sum(1))
    gram = rows.T @ rows + torch.eye(12, dtype=torch.float64)
    hat = rows @ torch.linalg.inv(gram) @ rows.T
    torch.testing.assert_close(score.leverage(train), hat.diagonal())
    torch.testing.assert_close(score.diagonal_leverage(x), (new.square() / gram.diagonal()).sum(1))
    torch.testing.assert_close(score.nearest_input(train), torch.zeros(30, dtype=torch.float64), rtol=0, atol=1e-6)
    distances = (new[:, None] - rows).norm(dim=2).amin(1)
    torch.testing.assert_close(score.nearest_input(x), distances)
    assert not score.blanked(x)[..., -1].any()
    assert score.blanked(x)[..., :-1].equal(x[..., :-1])


def test_principal_components_are_those_of_scikit_learn() -> None:
    from sklearn.decomposition import PCA

    train, x = torch.randn(50, 6) * torch.tensor([5, 3, 1, 0.3, 0.2, 0.1]), torch.randn(7, 6)
    theirs = PCA(0.95, svd_solver="full").fit(train.double().numpy())
    expected = -torch.from_numpy(theirs.score_samples(x.double().numpy()))
    torch.testing.assert_close(TrainingInputs(train).principal_components(x), expected)


def test_few_wide_training_inputs_have_the_scores_of_their_formulas() -> None:
    train, x = torch.randn(5, 8) * torch.tensor([5, 3, 1, 0.5, 0.3, 0.2, 0.1, 0.1]), torch.randn(7, 8)
    score, rows, new = TrainingInputs(train), train.double(), x.double()
    inverse = torch.linalg.inv(rows.T @ rows + torch.eye(8, dtype=torch.float64))
    torch.testing.assert_close(score.leverage(x), ((new @ inverse) * new).sum(1))
    values, vectors = torch.linalg.eigh(rows.T.cov())
    kept = int((values.flip(0).cumsum(0) / values.sum() < 0.95).sum()) + 1
    rest = values.sum() - values[-kept:].sum()
    model = vectors @ torch.cat([(rest / (8 - kept)).expand(8 - kept), values[-kept:]]).diag() @ vectors.T
    expected = -torch.distributions.MultivariateNormal(rows.mean(0), model).log_prob(new)
    torch.testing.assert_close(score.principal_components(x), expected)


@pytest.mark.parametrize("shape", [(30, 6), (5, 8)], ids=["many", "few"])
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_leverage_keeps_its_digits_for_large_inputs(shape: tuple[int, int], scale: float) -> None:
    """Exact rational arithmetic, of inputs that are not independent."""
    generator = torch.Generator().manual_seed(0)
    train = scale * torch.randint(-3, 4, shape, generator=generator)
    train[:, -1] = train[:, 0]
    x = scale * torch.randint(-3, 4, (4, shape[1]), generator=generator)
    rows = Matrix(train.long().tolist())
    precision = rows.T * rows + eye(shape[1])
    expected = [float((Matrix([row]) * precision.LUsolve(Matrix(row)))[0]) for row in x.long().tolist()]
    torch.testing.assert_close(TrainingInputs(train).leverage(x), torch.tensor(expected, dtype=torch.double))


def test_distances_do_not_depend_on_the_origin() -> None:
    train, x = images(60, 0).double(), images(40, 1).double()
    expected = TrainingInputs(train).nearest_input(x)
    torch.testing.assert_close(TrainingInputs(train + 2**27).nearest_input(x + 2**27), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", ["a wide column", "two clusters", "a stray row"])
def test_distances_do_not_cancel(kind: str) -> None:
    train, x = (torch.randn(n, 5, generator=torch.Generator().manual_seed(n)).double() for n in (60, 40))
    if kind == "a wide column":
        train[:, 0] *= 1e7
        x[:, 0] *= 1e7
    elif kind == "two clusters":
        train[::2] += 1e8
        x[::2] += 1e8
    else:
        train[0] = 1e12
    expected = (x[:, None] - train).norm(dim=2).amin(1)
    torch.testing.assert_close(TrainingInputs(train).nearest_input(x), expected, rtol=1e-6, atol=0)


def test_a_stray_row_does_not_make_distances_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences are taken where products cancel, twelve times slower: here nowhere."""
    train, x = (torch.randn(n, 5, generator=torch.Generator().manual_seed(n)).double() for n in (60, 40))
    train[0] = 1e12
    counts, nearest = [], _inputs._nearest

    def counted(rows: torch.Tensor, parts: Any, mode: str) -> torch.Tensor:
        counts.append(len(rows))
        return nearest(rows, parts, mode)

    monkeypatch.setattr(_inputs, "_nearest", counted)
    TrainingInputs(train).nearest_input(x)
    assert counts == [40, 0]
    TrainingInputs(train).nearest_input(train)
    assert counts[2:] == [60, 60], "rows that are compared with themselves"


def test_leverage_takes_training_inputs_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    train, x = images(30, 0), images(4, 1)
    expected = TrainingInputs(train).leverage(x)
    monkeypatch.setattr("osculate.tasks._inputs.ROWS", 7)
    torch.testing.assert_close(TrainingInputs(train).leverage(x), expected)


def test_entries_of_very_different_size_vary() -> None:
    train = torch.cat([torch.full((30, 1), 1e12), torch.randn(30, 3)], 1)
    assert "principal_components" in ood(None, train[:9], train[9:], train=train).inside


def test_training_inputs_whose_variance_is_no_number_have_no_principal_components() -> None:
    train = 1e-170 * torch.rand(9, 3).double()
    assert "principal_components" not in ood(None, train[:4], train[4:], train=train).inside


def test_inputs_whose_squares_are_no_numbers_are_refused() -> None:
    x = 1e155 * torch.rand(9, 3).double()
    with pytest.raises(ValueError, match=says("e+154", "rescale")):
        ood(None, x[:4], x[4:], train=x)


def test_scores_of_inputs_beside_a_model_show_their_progress(capsys: pytest.CaptureFixture[str]) -> None:
    q = osc.posteriors.Point(nn.Linear(3, 2), osc.likelihoods.Categorical())
    x = torch.randn(9, 3)
    ood(q, x[:4], {"far": x[4:]}, train=x, progress=True)
    assert "comparing outside inputs 'far'" in capsys.readouterr().out


def test_a_score_that_is_named_twice_is_one_score(q: Any) -> None:
    once, twice = (ood(q, INSIDE, OUTSIDE, scores=["entropy"] * n) for n in (1, 2))
    assert twice.inside["entropy"].equal(once.inside["entropy"])
    assert "tensor" not in repr(once)
    with pytest.raises(TypeError, match="nonsense"):
        ood(q, INSIDE, OUTSIDE, nonsense=None)


def test_an_error_tells_which_inputs_were_scored() -> None:
    """And does not blame them: the network may be the reason."""
    linear = nn.Linear(3, 2)
    with torch.no_grad():
        linear.weight.fill_(1e30)
    point = osc.posteriors.Point(linear, osc.likelihoods.Categorical())
    with pytest.raises(ValueError, match=says("while scoring the outside inputs 'far'")):
        ood(point, torch.zeros(4, 3), {"far": torch.full((4, 3), 3e30)})
    with pytest.raises(RuntimeError, match="while scoring the outside inputs 'wide'"):
        ood(point, torch.zeros(4, 3), {"wide": torch.zeros(4, 5)})
    words = osc.posteriors.Point(nn.Sequential(nn.Embedding(5, 3), nn.Flatten()), osc.likelihoods.Categorical())
    with pytest.raises(IndexError) as raised:
        ood(words, torch.ones(4, 1, dtype=torch.long), {"new": torch.full((4, 1), 7)})
    assert "while scoring the outside inputs 'new'" in "".join(raised.value.__notes__)
    with pytest.raises(ValueError, match="the training inputs reach 1e\\+200"):
        ood(None, torch.zeros(4, 3), torch.ones(4, 3), train=torch.full((5, 3), 1e200, dtype=torch.double))
    small = Autoencoder(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), nn.Linear(3, 4))
    with pytest.raises(ValueError, match=r"^the decoder returns"):
        ood(osc.posteriors.Point(small, osc.likelihoods.Gaussian(0.5)), images(4, 1), images(4, 2))


def test_scores_of_inputs_alone_are_the_same_beside_any_model() -> None:
    train, inside, outside = (images(n, seed).double() for n, seed in ((30, 0), (4, 1), (4, 2)))
    linear = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    models = [None, autoencoder(1.0, 1.0), osc.posteriors.Point(linear, osc.likelihoods.Categorical())]
    names = ["mean_pixel", *TrainingInputs.NAMES]
    records = [ood(q, inside, outside, train=train, scores=names) for q in models]
    for record in records:
        assert all(record.inside[name].equal(records[0].inside[name]) for name in names)


@pytest.mark.parametrize("train", [torch.full((9, 3), 0.1), torch.rand(1, 3), torch.zeros(5, 9)])
def test_training_inputs_that_do_not_vary_have_no_principal_components(train: torch.Tensor) -> None:
    x = torch.rand(4, train.shape[1])
    assert "principal_components" not in ood(None, x, x, train=train).inside
    with pytest.raises(ValueError, match=says("principal_components", "all equal")):
        ood(None, x, x, train=train, scores="principal_components")


def test_a_posterior_over_an_autoencoder_is_scored_as_its_representation() -> None:
    point = osc.posteriors.Point(coder(), osc.likelihoods.Gaussian(0.5))
    found, expected = (ood(each, images(4, 1), images(4, 2)) for each in (point, Representation(point)))
    assert {name: values.tolist() for name, values in found.inside.items()} == {
        name: values.tolist() for name, values in expected.inside.items()
    }


def test_a_posterior_over_an_autoencoder_also_has_its_predictive() -> None:
    data, q = (images(4, 1), images(4, 2)), autoencoder(1.0, 1.0).posterior
    expected = osc.functional_variance(q, data[0], diagonal=True).sum((1, 2))
    found = ood(q, *data, scores="functional_variance").inside["functional_variance"]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)
    assert set(ood(q, *data, via="linearised").inside) == {"entropy", "functional_variance"}
    with pytest.raises(ValueError, match=says("'nll'", "'functional_variance'", "two calls")):
        ood(q, *data, scores=["nll", "functional_variance"])
    with pytest.raises(ValueError, match=says("'functional_variance'", ".posterior", "'nll'")):
        ood(autoencoder(1.0, 1.0), *data, scores="functional_variance")
    assert "nll" in ood(q, *data, link=None, samples=2).inside
    with pytest.raises(TypeError, match=says("'via'", "Representation")):
        ood(q, *data, scores="nll", via="linearised")


@pytest.mark.parametrize("kind", ["refined", "Snapshots"])
def test_a_posterior_without_a_representation_is_scored_by_its_predictive(kind: str) -> None:
    x, likelihood, net = images(30, 0), osc.likelihoods.Bernoulli(grey=True), coder()
    if kind == "refined":
        q: Any = osc.laplace(net, likelihood, (x, x), structure="diag", prior=1.0, refine=True)
    else:  # of a VAE whose codes have parameters
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(12, 6))
        vae = osc.autoencoders.VAE(encoder, net.decoder, posterior=osc.autoencoders.FlowCodes(3, 6))
        network = osc.parameters.Network(vae, [name for name, _ in vae.named_parameters()])
        draws = [torch.rand(network.space.size), torch.randn(4, network.space.size)]
        q = osc.posteriors.Snapshots(network, likelihood, *draws)
    found = ood(q, images(4, 1), images(4, 2), samples=3).inside
    assert "entropy" in found
    assert "nll" not in found
    with pytest.raises(ValueError, match=kind):
        ood(q, images(4, 1), images(4, 2), scores="nll")


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("kind", ["Point", "Ensemble"])
def test_relative_deviation_is_of_a_gaussian_posterior(kind: str, samples: int) -> None:
    data, likelihood = (images(4, 1), images(4, 2)), osc.likelihoods.Gaussian(0.5)
    point = osc.posteriors.Point(coder(), likelihood)
    q = point if kind == "Point" else osc.posteriors.Ensemble([coder(0), coder(1)], likelihood)
    with pytest.raises(ValueError, match=says("'relative_deviation'", "Gaussian", kind)):
        ood(q, *data, scores="relative_deviation", samples=samples)


@pytest.mark.parametrize("score", ["waic", "output_deviation"])
def test_a_spread_of_one_network_is_refused(score: str) -> None:
    data = images(4, 1), images(4, 2)
    with pytest.raises(ValueError, match=says(score, "samples=2")):
        ood(autoencoder(1.0, 1.0), *data, scores=score, samples=1)
    assert score not in ood(autoencoder(1.0, 1.0), *data, samples=1).inside
    with pytest.raises(ValueError, match=says(score, "Point has none")):
        ood(osc.posteriors.Point(coder(), osc.likelihoods.Gaussian(0.5)), *data, scores=score, samples=1)


def test_only_densities_need_images_that_the_likelihood_has() -> None:
    point = osc.posteriors.Point(coder(), osc.likelihoods.Bernoulli(grey=True))
    with pytest.raises(ValueError, match=says("while scoring the outside inputs 'ink'", "Bernoulli")):
        ood(point, images(4, 1), {"ink": 3 * images(4, 2)})
    with pytest.raises(ValueError, match=says("while scoring the inside inputs", "Bernoulli")):
        ood(point, 3 * images(4, 1), images(4, 2))
    ensemble = osc.posteriors.Ensemble([coder(0), coder(1)], osc.likelihoods.Bernoulli(grey=True))
    found = ood(ensemble, images(4, 1), 3 * images(4, 2), scores="output_deviation")
    assert found.outside["outside"]["output_deviation"].isfinite().all()


def test_inputs_alone_stand_beside_every_score_if_there_are_training_inputs(q: Any) -> None:
    found = ood(q, INSIDE, OUTSIDE, train=INSIDE).auroc["outside"]
    assert set(found) == {"entropy", "max_probability", "functional_variance", "mean_pixel"} | set(
        TrainingInputs.NAMES
    ) - {"unlit_pixels"}  # no entry is zero
    assert found["nearest_input"] > 0.9
    with pytest.raises(ValueError, match=says("nearest_input", "train=")):
        ood(q, INSIDE, OUTSIDE, scores=("nearest_input",))
    with pytest.raises(ValueError, match="train"):
        ood(q, INSIDE, OUTSIDE, blank=True)
    with pytest.raises(ValueError, match="training inputs are empty"):
        ood(q, INSIDE, OUTSIDE, train=INSIDE[:0])
    with pytest.raises(ValueError, match="shape"):
        ood(q, INSIDE, OUTSIDE, train=INSIDE[:, :2])


def coder(seed: int = 0) -> Autoencoder:
    torch.manual_seed(seed)
    decoder = nn.Sequential(nn.Linear(3, 12), nn.Unflatten(1, (3, 4)))
    return Autoencoder(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), decoder)


def autoencoder(temperature: float, prior: float) -> Representation:
    likelihood = osc.likelihoods.Gaussian(0.5)
    r = LaplacianAutoencoder.post_hoc(coder(), likelihood, images(30, 0), validation=None, prior=prior)
    assert isinstance(r.posterior, osc.posteriors.Gaussian)
    return Representation(r.posterior.replace(temperature=temperature))


def test_relative_deviations_are_one_without_curvature_and_small_where_the_data_determine_the_weights() -> None:
    scores = {"scores": ("relative_deviation",), "samples": 40}
    flat = ood(autoencoder(1e20, 4.0), images(4, 1), images(4, 2), **scores)
    torch.testing.assert_close(flat.inside["relative_deviation"], torch.full((4,), 0.5, dtype=torch.float64))
    seen = ood(autoencoder(1.0, 1.0), images(9, 1), 5 * torch.rand(9, 3, 4), **scores)
    assert (seen.inside["relative_deviation"] < 1).all()
    point = Representation(osc.posteriors.Point(coder(), osc.likelihoods.Gaussian(0.5)))
    with pytest.raises(ValueError, match="relative_deviation"):
        ood(point, images(4, 1), images(4, 2), scores=("relative_deviation",))


def test_blanked_pixels_tell_nothing() -> None:
    ink = images(8, 3)
    ink[..., -1] = 1
    r = autoencoder(1.0, 1.0)
    seen = ood(r, images(8, 4), {"ink": ink}, train=images(30, 0), samples=5)
    blank = ood(r, images(8, 4), {"ink": ink}, train=images(30, 0), blank=True, samples=5)
    assert seen.auroc["ink"]["unlit_pixels"] == 1
    assert blank.auroc["ink"]["unlit_pixels"] == 0.5


@pytest.mark.parametrize("curvature", ["ggn", "fisher"])
def test_kronecker_factors_of_an_autoencoder(curvature: str) -> None:
    options = {"validation": images(9, 1), "structure": "kron", "curvature": curvature}
    r = LaplacianAutoencoder.post_hoc(coder(), osc.likelihoods.Gaussian(0.5), images(30, 0), **options)
    assert ood(r, images(4, 1), 3 * images(4, 2), samples=5).auroc["outside"]["output_deviation"] > 0.5
