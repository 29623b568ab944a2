"""Training a VAE on its bound: by ELBO with what surrounds it, and by every method that knows of drawn codes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.autoencoders import (
    CODE_PRIORS,
    ELBO,
    VAE,
    BoundSettings,
    Corruption,
    Representation,
)
from osculate.inputs import Inputs
from osculate.methods import IVON, L2M, MAP, VOGN, MeanFieldVI, VariationalLaplace
from osculate.methods._base import Method
from osculate.methods._mean_field import MeanFieldMethod
from tests.autoencoders.families import FAMILIES

LIKELIHOOD = osc.likelihoods.Gaussian(0.3)
PAIRS = [(f, p) for f in FAMILIES for p in CODE_PRIORS if p != "beta" or f == "sigmoid"]
GAUSSIAN: dict[str, Callable[[VAE], Method]] = {
    "mean field": lambda net: MeanFieldVI(net, LIKELIHOOD),
    "mean field, drawn weights": lambda net: MeanFieldVI(net, LIKELIHOOD, local=False),
    "ivon": lambda net: IVON(net, LIKELIHOOD),
    "variational laplace": lambda net: VariationalLaplace(net, LIKELIHOOD),
    "vogn": lambda net: VOGN(net, LIKELIHOOD),
    "l2m": lambda net: L2M(net, LIKELIHOOD),
}
METHODS: dict[str, Callable[[VAE], Method]] = {
    "elbo": lambda net: ELBO(net, LIKELIHOOD),
    "map": lambda net: MAP(net, LIKELIHOOD),
    **GAUSSIAN,
}
#: Marks of each pair's methods, in turn: two are in `make test`, two are slow, the others wait for a release.
MARKS = [(), pytest.mark.slow, *[pytest.mark.release] * len(METHODS)]
#: Each pair with each method.
EVERY = [
    pytest.param(*pair, name, marks=MARKS[(place - 2 * number) % len(METHODS) // 2])
    for number, pair in enumerate(PAIRS)
    for place, name in enumerate(METHODS)
]


def images(n: int = 24) -> Tensor:
    return torch.rand(n, 6, generator=torch.Generator().manual_seed(0))


def network(family: str = "gaussian", prior: str = "normal") -> VAE:
    torch.manual_seed(0)
    decoder = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 6))
    return VAE(nn.Linear(6, 4), decoder, FAMILIES[family](), prior)


def trained(method: Method, epochs: int = 2, **options: Any) -> Any:
    x = images()
    return osc.train(method, (x, x), epochs=epochs, batch_size=8, progress=False, **options)


# ---- every method, with every kind of codes --------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "prior", "name"), EVERY)
@pytest.mark.filterwarnings("ignore")
def test_every_method_trains_codes_of_every_kind(family: str, prior: str, name: str) -> None:
    net, x = network(family, prior), images()
    before = {key: value.clone() for key, value in net.named_parameters()}
    done = trained(METHODS[name](net), **({"lr": 0.03} if name in ("ivon", "vogn") else {}))
    still = [key for key, value in net.named_parameters() if torch.equal(value, before[key])]
    assert not still, "each parameter of encoder, codes and decoder is trained"
    q = done.posterior
    if name in GAUSSIAN:
        assert q.network.space.names == tuple(key for key in before if key.startswith("decoder."))
    r = Representation(q)
    code, image = r.encode(x, 3), r.reconstruct(x, 3)
    assert code.sample((5,)).shape == (5, 24, 2)
    assert code.codes(4).shape == (4, 24, 2)
    assert bool(code.latent_variance.gt(0).all())
    assert image.sample().shape == x.shape
    assert bool(image.log_prob(x).isfinite().all())
    assert r.generate(3, torch.Generator().manual_seed(0)).shape == (3, 6)


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_data_tell_mean_and_deviation_of_drawn_weights(family: str, local: bool) -> None:
    """log p(x|z, θ) is that of the drawn weights: with so many data the prior has no part in the gradient."""
    method, x = MeanFieldVI(network(family), LIKELIHOOD, local=local), images()
    method.loss(x, x, num_data=10**12).backward()
    assert all(bool(value.grad.any()) for value in method.mean.values())
    assert method.log_deviation.grad is not None
    assert float(method.log_deviation.grad.abs().median()) > 1e-5


@pytest.mark.filterwarnings("ignore:the network has piecewise linear operations")
@pytest.mark.parametrize("name", ["ivon", "variational laplace", "vogn"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_data_tell_mean_and_curvature_of_the_weights(family: str, name: str) -> None:
    method, x = GAUSSIAN[name](network(family)), images()
    assert isinstance(method, MeanFieldMethod)
    method.prepare([(x, x)])
    optimizer = method.optimizer(torch.optim.SGD, 0.01)
    found = []
    for _ in range(12):
        optimizer.zero_grad()
        method.loss(x, x, num_data=24).backward()
        assert all(bool(value.grad.any()) for value in method.mean.values())
        found.append(method.deviations().clone())
        optimizer.step()
    assert float((found[-1] != found[0]).float().mean()) > 0.9


def test_drawn_weights_move_the_data_term() -> None:
    """With one code, the loss of the mean network differs from that of drawn ones by its variance alone."""
    net, x = network(), images()
    method = MeanFieldVI(net, LIKELIHOOD, local=False)
    with torch.no_grad():
        net.encoder.weight.zero_()
        net.encoder.bias.copy_(torch.tensor([0.0, 0.0, -40.0, -40.0]))  # the code is 0
        method.log_deviation.fill_(-1.0)
        losses = torch.stack([method.loss(x, x, num_data=24) for _ in range(20)])
        method.log_deviation.fill_(-30.0)
        sure = torch.stack([method.loss(x, x, num_data=24) for _ in range(20)])
    assert float(losses.std()) > 1
    assert float(sure.std()) < 1e-3


def test_every_method_trains_the_discriminator_with_the_loss_of_its_own() -> None:
    net, x = network("adversarial"), images()
    own = list(net.posterior.discriminator.parameters())
    torch.manual_seed(2)
    f, ratio = net(draw=x)
    found = torch.autograd.grad(ratio.mean(), own)
    torch.manual_seed(2)
    z, value = net.posterior.draw(net.code(x), net.prior)
    assert torch.equal(ratio, value[0])
    assert torch.equal(f, net(decode=z[0]))
    for one, other in zip(
        found, torch.autograd.grad(net.posterior.extra_loss(net.code(x), net.prior), own), strict=True
    ):
        torch.testing.assert_close(one, other)


# ---- what surrounds the bound ----------------------------------------------------------------------------------------


class Watched(ELBO):
    """Notes the weight of the divergence and the progress of the training at each step."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.weights: list[float] = []
        self.progress: list[float] = []

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Tensor:
        self.progress.append(float(self.done))
        return super().loss(x, y, num_data)

    def _estimates(self, x: Tensor, y: Tensor, weight: float = 1.0) -> Tensor:
        self.weights.append(weight)
        return super()._estimates(x, y, weight)


def test_warm_up_and_noise_follow_the_epochs_and_begin_again() -> None:
    settings = BoundSettings(warmup=4, corruption=Corruption(schedule="linear"))
    method = Watched(network(), LIKELIHOOD, settings=settings)
    for _ in range(2):
        trained(method, epochs=5)
        assert method.weights[::3] == [0.25, 0.5, 0.75, 1.0, 1.0]  # of three steps an epoch
        assert method.progress[::3] == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])
        method.weights, method.progress = [], []
    x = images()
    torch.manual_seed(0)
    watched = method.log_prob(x, x)
    assert method.weights == [1.0]
    assert watched.shape == (24,)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_interrupted_training_ends_as_the_uninterrupted(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = BoundSettings(warmup=6, corruption=Corruption("mask", 0.5, "linear"), binarise=True, learn_noise=True)

    def run(**options: Any) -> Any:
        return trained(ELBO(network(family), LIKELIHOOD, settings=settings), epochs=6, **options)

    whole, original, calls = run(), ELBO.loss, []

    def interrupted(self: ELBO, *args: Any) -> Tensor:
        calls.append(1)
        if len(calls) == 11:
            raise KeyboardInterrupt
        return original(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(ELBO, "loss", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(folder=tmp_path)
    resumed, again = run(folder=tmp_path, resume=True), run(folder=tmp_path, resume=True)
    for other in (resumed, again):
        assert whole.posterior.likelihood.scale == other.posterior.likelihood.scale != 0.3
        for one, two in zip(whole.posterior.model.parameters(), other.posterior.model.parameters(), strict=True):
            assert torch.equal(one, two)


@pytest.mark.slow
def test_the_learned_noise_is_that_of_the_residuals() -> None:
    """Codes say nothing of images that are noise of deviation 0.7 around one image."""
    x = 0.7 * torch.randn(2000, 6, generator=torch.Generator().manual_seed(0)) + 1
    net = VAE(nn.Linear(6, 4), nn.Linear(2, 6))
    method = ELBO(net, osc.likelihoods.Gaussian(0.3), 1e-4, settings=BoundSettings(learn_noise=True))
    done = osc.train(method, (x, x), epochs=60, lr=0.05, batch_size=200, progress=False)
    found = done.posterior.likelihood.scale
    residual = float((Representation(done).reconstruct(x, 20).outputs - x).square().mean().sqrt())
    assert float(found) == pytest.approx(residual, rel=0.02)
    assert float(found) == pytest.approx(0.7, rel=0.05)
    assert done.history[-1]["noise_factor"] * 0.3 == pytest.approx(float(found), rel=1e-5)
    assert method.log_prob(x, x).mean() > -6 * (1.42 + torch.tensor(0.7).log()) - 0.5


def test_the_noise_of_a_likelihood_without_one_is_not_learned() -> None:
    with pytest.raises(ValueError, match="Bernoulli has no noise scale"):
        ELBO(network(), osc.likelihoods.Bernoulli(), settings=BoundSettings(learn_noise=True))


class Seen(osc.likelihoods.Bernoulli):
    """Keeps the targets that it is asked about."""

    seen: list[Tensor] = []

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        self.seen.append(y.detach())
        return super().log_prob(f, y)


def test_binarised_images_are_drawn_anew_with_the_probabilities_of_their_pixels() -> None:
    likelihood, x = Seen(), images()
    likelihood.seen.clear()
    method = ELBO(network(), likelihood, settings=BoundSettings(binarise=True))
    for _ in range(400):
        method.loss(x, x, num_data=24)
    drawn = torch.stack(likelihood.seen)
    assert bool(((drawn == 0) | (drawn == 1)).all())
    assert drawn.shape == (400, 24, 6)
    torch.testing.assert_close(drawn.mean(0), x, atol=0.12, rtol=0)
    likelihood.seen.clear()
    method.log_prob(x, x)
    assert bool(((likelihood.seen[0] == 0) | (likelihood.seen[0] == 1)).all())


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: ELBO(network(), LIKELIHOOD, estimator="C"), ValueError, "unknown estimator 'C'"),
        (lambda: ELBO(network(), LIKELIHOOD, samples=0), ValueError, "samples must be a whole number"),
        (lambda: BoundSettings(warmup=-1), ValueError, "warmup must be a whole number of at least 0"),
    ],
)
def test_what_cannot_work_is_refused(make: Callable[[], object], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        make()


def test_the_estimator_is_the_one_with_least_variance_by_default() -> None:
    assert ELBO(network(), LIKELIHOOD).estimator == "B"
    assert ELBO(network(prior="two_normals"), LIKELIHOOD).estimator == "stl"
    assert ELBO(network("flow"), LIKELIHOOD).choices()["estimator"] == "stl"


# ---- files -----------------------------------------------------------------------------------------------------------


def numbers(r: Representation) -> Iterator[Tensor]:
    x, generator = images(), torch.Generator().manual_seed(0)
    yield r.encode(x).mean
    yield r.encode(x).codes(3, generator)
    yield r.reconstruct(x, 3, generator=generator).outputs
    yield r.generate(2, generator)


@pytest.mark.parametrize("name", ["elbo", pytest.param("mean field", marks=pytest.mark.release)])
@pytest.mark.parametrize(("family", "prior"), PAIRS)
@pytest.mark.filterwarnings("ignore:.* steps are few", "ignore:the posterior is hardly")
def test_a_trained_vae_comes_back_from_its_file(family: str, prior: str, name: str, tmp_path: Path) -> None:
    q = trained(METHODS[name](network(family, prior))).posterior
    osc.save(q, tmp_path / "q.safetensors")
    torch.manual_seed(9)
    again = osc.load(tmp_path / "q.safetensors", network(family, prior))
    for one, two in zip(numbers(Representation(q)), numbers(Representation(again)), strict=True):
        assert torch.equal(one, two)
