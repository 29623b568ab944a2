"""Inputs that are odd or wrong: finite numbers, or an error that names the value, the reason and the way out."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.autoencoders import (
    ELBO,
    VAE,
    AdversarialCodes,
    Autoencoder,
    BoundSettings,
    FlowCodes,
    LaplacianAutoencoder,
    Representation,
    SemiImplicitCodes,
    active_units,
    bound,
    interpolations,
    manifold,
)
from osculate.autoencoders.autoencoder import require_inputs
from osculate.methods import OnlineLaplace, OnlineUpdates

LIKELIHOOD = osc.likelihoods.Gaussian(0.3)
SHAPE = (1, 4, 4)
HALF = osc.tasks.lower_half(SHAPE)
ALL = torch.ones(SHAPE, dtype=torch.bool)
LABELS = torch.arange(12) % 3

pytestmark = pytest.mark.filterwarnings("ignore:networks sampled")


def images(n: int = 12) -> Tensor:
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(0))


def network(latent: int = 2, conv: bool = False) -> Autoencoder:
    torch.manual_seed(0)
    coders = osc.networks.conv_coders(SHAPE, latent, 2, 2) if conv else osc.networks.mlp_coders(SHAPE, latent, (8,))
    return Autoencoder(*coders)


def mismatched(latent: int = 2, side: int = 4) -> Autoencoder:
    decoder = nn.Sequential(nn.Linear(latent, side**2), nn.Unflatten(1, (1, side, side)))
    return Autoencoder(nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), decoder)


def fitted(x: Tensor | None = None, model: Autoencoder | None = None, structure: str = "diag") -> Representation:
    x = images() if x is None else x
    return Representation(
        osc.laplace(model or network(), LIKELIHOOD, (x, x), structure=structure, prior=10.0, refine=False), codes=x
    )


def point(model: Autoencoder) -> Representation:
    return Representation(osc.posteriors.Point(model, LIKELIHOOD))


def online(model: Autoencoder | None = None, **options: Any) -> OnlineLaplace:
    return OnlineLaplace(model or network(), LIKELIHOOD, temperature=0.01, **options)


def trained(x: Tensor, y: Tensor | None = None, method: Any = None) -> osc.training.Training:
    data = x, x if y is None else y
    return osc.train(method or online(), data, epochs=2, batch_size=4, progress=False)


def nearest(x: Tensor, test: Tensor | None = None, **options: Any) -> Any:
    settings = {"labels": (1,), "repeats": 2, "samples": 2, "neighbours": (1,), **options}
    inputs = x if test is None else test
    return osc.tasks.semi_supervised(fitted(), x, LABELS[: len(x)], (inputs, LABELS[: len(inputs)]), **settings)


def everything(r: Representation, x: Tensor) -> dict[str, Any]:
    """Every answer about some images, by name."""
    tasks = {
        "ood": osc.tasks.ood(r, x, images(), samples=4, train=x).metrics(),
        "imputation": osc.tasks.imputation(r, x, HALF, draws=2).metrics(),
    }
    answers: dict[str, Any] = {"log_prob": r.log_prob(x, 4), "generate": r.generate(3), **tasks}
    for via in ("sampled", "linearised"):
        for what, found in (("codes", r.encode(x, 4, via=via)), ("images", r.reconstruct(x, 4, via=via))):
            answers |= {f"{what} {via}, mean": found.mean, f"{what} {via}, variance": found.variance}
            assert bool((found.variance >= 0).all())
    exact = r.reconstruct(x, via="linearised", exact=True)
    return {**answers, "exact": exact.variance, "exact, log_prob": exact.log_prob(x)}


def not_finite(found: dict[str, Any]) -> list[str]:
    """The names of answers that are not finite."""
    values = {k: torch.tensor(list(v.values())) if isinstance(v, dict) else v for k, v in found.items()}
    return [name for name, value in values.items() if not bool(value.isfinite().all())]


def test_a_laplace_posterior_over_a_vae_is_one_over_its_decoder() -> None:
    x, net = images(), VAE(*osc.networks.mlp_coders(SHAPE, 2, (8,), codes=2))
    with pytest.raises(ValueError, match=r"subset=\['decoder'\]"):
        LaplacianAutoencoder.post_hoc(net, LIKELIHOOD, x, validation=None)
    q = osc.laplace(net, LIKELIHOOD, (x, x), subset=["decoder"], prior=1.0, refine=False)
    code = Representation(q).encode(x, 3)
    assert float(code.weight_variance.max()) < 1e-12
    assert bool((code.variance > 0).all())


# ---- what works ------------------------------------------------------------------------------------------------------


def test_a_refined_posterior_has_no_representation() -> None:
    x = images()
    q = osc.laplace(network(), osc.likelihoods.Gaussian(0.5), (x, x), structure="diag", prior=1.0, refine=False)
    with pytest.raises(ValueError, match="this posterior is refined.*osc.laplace"):
        Representation(osc.refine(q))
    model = VAE(*osc.networks.mlp_coders(SHAPE, 2, (8,), codes=2))
    decoder = osc.laplace(model, LIKELIHOOD, (x, x), subset=["decoder"], prior=1.0, refine=False)
    with pytest.raises(ValueError, match="this posterior is refined"):
        bound(decoder.replace(offset=torch.ones_like(decoder.mean)), x)


@pytest.mark.parametrize("structure", ["diag", "approx_diag", "kron", "full"])
@pytest.mark.parametrize("value", [0.0, 0.5])
def test_constant_images(structure: str, value: float) -> None:
    x = torch.full((6, *SHAPE), value)
    assert not not_finite(everything(fitted(x, structure=structure), x))


def test_a_network_without_biases_is_certain_of_black_images() -> None:
    x = torch.zeros(4, 6)
    net = Autoencoder(nn.Linear(6, 2, bias=False), nn.Linear(2, 6, bias=False))
    r = Representation(osc.laplace(net, LIKELIHOOD, (x, x), structure="diag", prior=1.0, refine=False))
    code, image = r.encode(x, via="linearised"), r.reconstruct(x, via="linearised", exact=True)
    assert not code.variance.any()
    assert float(image.weight_variance.max()) < 1e-30
    torch.testing.assert_close(image.noise_variance, torch.full_like(x, 0.09))
    assert bool(image.log_prob(x).isfinite().all())


def test_training_on_constant_images() -> None:
    x = torch.zeros(8, *SHAPE)
    done = trained(x, method=online(learn=("noise", "prior")))
    assert not not_finite(dict.fromkeys(["row"], {k: float(v) for k, v in done.history[-1].items()}))
    r = LaplacianAutoencoder.post_hoc(network(), LIKELIHOOD, x, validation=x, samples=3)
    assert not not_finite(everything(r, x))


def test_a_code_with_more_numbers_than_the_image() -> None:
    x, model = images(), network(40)
    assert not not_finite(everything(fitted(model=model, structure="kron"), x))
    assert fitted(model=model).encode(x, via="linearised").variance.shape == (12, 40)
    assert not not_finite({"loss": torch.tensor(trained(x, method=online(network(40))).history[-1]["train_loss"])})


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("conv", [False, True])
def test_fewer_data_than_a_batch(n: int, conv: bool) -> None:
    x = images(n)
    q = trained(x, method=online(network(conv=conv))).posterior
    assert not not_finite(everything(LaplacianAutoencoder(q, codes=x), x))
    assert fitted().encode(x, 3, batch_size=500).mean.shape == (n, 2)
    assert not not_finite(everything(fitted(x, network(conv=conv)), x))
    assert osc.tasks.imputation(fitted(), x, HALF, draws=2, batch_size=500).images.shape == (2, n, *SHAPE)


def test_a_mask_that_hides_everything_starts_from_noise_alone() -> None:
    r, x = fitted(), images()
    for start in ("noise", "mean"):
        record = osc.tasks.imputation(r, x, ~ALL, draws=3, start=start)
        assert not not_finite({"scores": record.metrics(), "images": record.images})
    some = torch.stack([HALF, ALL])  # of one image everything is seen
    record = osc.tasks.imputation(r, x[:2], some, draws=3)
    assert torch.equal(record.images[:, 1], x[1].expand(3, *SHAPE))


def test_images_in_another_precision_are_taken_in_that_of_the_network() -> None:
    r, x = fitted(), images().double()
    assert not not_finite(everything(r, x))
    found = r.encode(x, via="linearised")
    assert found.mean.dtype == torch.float32
    torch.testing.assert_close(found.variance, r.encode(x.float(), via="linearised").variance)
    assert bool(r.encode(x.half(), 3).mean.isfinite().all())
    assert nearest(x, images()).accuracy["representation"].isfinite().all()
    model = network().double()
    again = fitted(x, model)
    assert again.encode(x.float(), via="linearised").mean.dtype == torch.float64


# ---- what is refused -------------------------------------------------------------------------------------------------


def with_nan() -> Tensor:
    x = images()
    x[3, 0, 1, 1] = torch.nan
    return x


class Pair(nn.Module):
    """An encoder that gives mean and log variance apart."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.flatten(1)[:, :2], x.flatten(1)[:, 2:4]


def diverged() -> VAE:
    net = VAE(*osc.networks.mlp_coders(SHAPE, 2, (8,), codes=2))
    with torch.no_grad():
        next(net.encoder.parameters()).fill_(torch.nan)
    return net


def binarised(x: Tensor, y: Tensor) -> object:
    net = VAE(*osc.networks.mlp_coders(SHAPE, 2, (8,), codes=2))
    return ELBO(net, osc.likelihoods.Bernoulli(), settings=BoundSettings(binarise=True)).loss(x, y, len(x))


def refusals() -> dict[str, tuple[Callable[[], object], type[Exception], str]]:
    """Calls by name, with the words of the error: the value, the reason, the way out."""
    r, x, bad, none, wrong = fitted(), images(), with_nan(), images(0), torch.rand(3, 1, 5, 5)
    whole = (255 * x).byte()
    impute, ood = osc.tasks.imputation, osc.tasks.ood
    post_hoc, tuned = LaplacianAutoencoder.post_hoc, LaplacianAutoencoder.tuned
    finite = "contain NaN or infinite values.*osc.tasks.imputation"
    floating = r"of torch.uint8, and networks take floating-point values.*x.float\(\), divided by 255"
    cleaned = "holds nan at index.*Clean the data"
    nothing, batches = "no inputs: pass a tensor with at least one row", "hold no batch.*Pass at least one"
    encoder = r"the encoder failed for inputs of shape \(1, 5, 5\).*resize them"
    decoder = r"the decoder failed for codes of shape \(2,\).*the same code size"
    size = r"the decoder returns \(1, 3, 3\) for inputs \(1, 4, 4\): it must return the shape of the inputs"
    unfit = ELBO(VAE(mismatched().encoder, nn.Linear(5, 16)), LIKELIHOOD)
    other = mismatched(3), mismatched(2, 3)
    density = r"and the reconstructions \(12, 1, 4, 4\): pass"
    cases: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
        # codes and bounds
        "encoder of two tensors": (lambda: VAE(Pair(), nn.Linear(2, 16)).code(x), TypeError, "tuple.*torch.cat"),
        **{
            f"numbers of {made.__name__}": (
                lambda made=made: VAE(nn.Linear(16, 4), nn.Linear(2, 16), made(2, 6)).code(x.flatten(1)),
                ValueError,
                "built for 6 encoder outputs, and the encoder has 4: pass numbers=4",
            )
            for made in (FlowCodes, SemiImplicitCodes, AdversarialCodes)
        },
        "bound that is NaN": (lambda: bound(diverged(), x, samples=2, likelihood=LIKELIHOOD), FloatingPointError, "12"),
        "units that are NaN": (lambda: active_units(diverged(), x), FloatingPointError, "smaller learning rate"),
        "binarised, out of range": (lambda: binarised(3 * x, 3 * x), ValueError, "binarise=True needs numbers"),
        "binarised, other targets": (lambda: binarised(x, 1 - x), ValueError, r"as both inputs and targets, \(x, x\)"),
        "laplace over an encoder": (
            lambda: osc.laplace(diverged(), LIKELIHOOD, (x, x), subset=["encoder"], refine=False),
            ValueError,
            r"no evidence.*subset=\['decoder'\]",
        ),
        "no such image": (lambda: interpolations(r, x, [(0, 99)]), ValueError, "index 99 of a pair is out of range"),
        "no place": (lambda: manifold(r, places=0), ValueError, "at least one image along each side.*places=0"),
        # NaN
        "nan, encode": (lambda: r.encode(bad), ValueError, finite),
        "nan, linearised": (lambda: r.encode(bad, via="linearised"), ValueError, finite),
        "nan, exact": (lambda: r.reconstruct(bad, via="linearised", exact=True), ValueError, finite),
        "nan, represent": (lambda: r.represent(bad), ValueError, finite),
        "nan, log_prob": (lambda: r.log_prob(bad), ValueError, finite),
        "nan, density": (lambda: r.reconstruct(x, 2).log_prob(bad), ValueError, "NaN or infinite.*impute them"),
        "nan, generate": (lambda: Representation(r.posterior, codes=bad).generate(2), ValueError, finite),
        "nan, post_hoc": (lambda: post_hoc(network(), LIKELIHOOD, bad, validation=None), ValueError, cleaned),
        "nan, validation": (lambda: tuned(r.posterior, bad, samples=2), ValueError, finite),
        "nan, training": (lambda: trained(bad), ValueError, cleaned),
        "nan, ood": (lambda: ood(r, x, bad), ValueError, "row 3 of the outside inputs.*Drop such rows"),
        "nan, observed": (lambda: impute(r, bad, ALL ^ (HALF.cumsum(2) == 1)), ValueError, "holds nan at.*Hide"),
        "nan, neighbours": (lambda: nearest(x, bad), ValueError, finite),
        # masks
        "mask hides nothing": (lambda: impute(r, x, ALL), ValueError, "hides no pixel.*False where x is to be imputed"),
        "options of no choice": (
            lambda: post_hoc(network(), LIKELIHOOD, x, validation=None, samples=3),
            TypeError,
            "samples: these options tune the temperature",
        ),
        "mask of numbers": (lambda: impute(r, x, HALF.float()), TypeError, r"torch.float32.*as_tensor\(observed"),
        "mask of another shape": (lambda: impute(r, x, HALF[:, :2]), ValueError, r"\(1, 2, 4\) does not fit.*needs"),
        # empty
        "empty, encode": (lambda: r.encode(none), ValueError, nothing),
        "empty, linearised": (lambda: r.reconstruct(none, via="linearised"), ValueError, nothing),
        "empty, decode": (lambda: r.decode(torch.zeros(0, 2)), ValueError, nothing),
        "empty, generate": (lambda: Representation(r.posterior, codes=none).generate(2), ValueError, nothing),
        "empty, post_hoc": (lambda: post_hoc(network(), LIKELIHOOD, none, validation=None), ValueError, batches),
        "empty, validation": (lambda: tuned(r.posterior, none, samples=2), ValueError, nothing),
        "empty, temperatures": (lambda: tuned(r.posterior, x, temperatures=()), ValueError, "no candidate.*pass"),
        "empty, training": (lambda: trained(none), ValueError, batches),
        "empty, batch": (lambda: online().loss(none, none, 12), ValueError, "batch of 0 of 12 data has no loss.*pass"),
        "empty, data": (lambda: online().loss(x, x, 0), ValueError, "batch of 12 of 0 data has no loss.*pass"),
        "empty, ood": (lambda: ood(r, none, x), ValueError, "inside inputs are empty: pass at least one"),
        "empty, imputation": (lambda: impute(r, none, HALF), ValueError, "with at least one image"),
        "empty, neighbours": (lambda: nearest(none, x), ValueError, "pool has 0 images.*give each"),
        # shapes
        "shape, encode": (lambda: r.encode(wrong), RuntimeError, encoder),
        "shape, linearised": (lambda: r.encode(wrong, via="linearised"), RuntimeError, encoder),
        "shape, channels": (
            lambda: point(network(conv=True)).encode(torch.rand(2, 3, 4, 4)),
            RuntimeError,
            r"inputs of shape \(3, 4, 4\).*resize them",
        ),
        "shape, flat": (lambda: r.reconstruct(x.flatten(1)), ValueError, r"returns \(1, 4, 4\) for inputs \(16,\)"),
        "shape, one image": (lambda: r.reconstruct(x[0]), ValueError, r"returns \(1, 4, 4\) for inputs \(4, 4\)"),
        "shape, one number": (lambda: r.encode(x[0, 0, 0]), ValueError, r"shape \(4,\), without.*unsqueeze"),
        "shape, density": (lambda: r.reconstruct(x, 2).log_prob(wrong), ValueError, density),
        "shape, density of fewer": (lambda: r.reconstruct(x, 2).log_prob(x[:5]), ValueError, density),
        "shape, exact density": (
            lambda: r.reconstruct(x, via="linearised", exact=True).log_prob(x[:1]),
            ValueError,
            density,
        ),
        "shape, codes": (lambda: r.decode(torch.rand(3, 5)), ValueError, r"\(3, 5\), and this network decodes"),
        "shape, generate": (lambda: Representation(r.posterior, codes=wrong).generate(2), RuntimeError, encoder),
        "shape, post_hoc": (lambda: post_hoc(network(), LIKELIHOOD, wrong, validation=None), RuntimeError, encoder),
        "shape, targets": (lambda: online().loss(x, x.flatten(1), 12), ValueError, r"targets \(2, 16\).*Reshape"),
        "shape, fewer targets": (lambda: trained(x, x[:5]), ValueError, "12 rows and Y has 5: give"),
        "shape, ood": (lambda: ood(r, x, wrong), ValueError, r"\(1, 5, 5\), the inside inputs \(1, 4, 4\): resize"),
        "shape, imputation": (lambda: impute(r, wrong, wrong[0] > 2), RuntimeError, encoder),
        "shape, neighbours": (lambda: nearest(x, wrong), ValueError, r"\(1, 4, 4\), the test set of \(1, 5.*resize"),
        # types
        "uint8, encode": (lambda: r.encode(whole), TypeError, floating),
        "uint8, linearised": (lambda: r.reconstruct(whole, via="linearised"), TypeError, floating),
        "bool, encode": (lambda: r.encode(x > 0.5), TypeError, "torch.bool, and networks take"),
        "a list": (lambda: require_inputs([[1.0]]), TypeError, "are a list: pass a tensor"),
        "uint8, codes": (lambda: r.decode(torch.ones(2, 2).long()), TypeError, "torch.int64, and networks take"),
        "uint8, validation": (lambda: tuned(r.posterior, whole, samples=2), TypeError, floating),
        "uint8, post_hoc": (
            lambda: post_hoc(network(), LIKELIHOOD, whole, validation=None),
            RuntimeError,
            r"failed for.*torch.uint8.*x.float\(\), divided by 255",
        ),
        "uint8, training": (lambda: trained(whole), RuntimeError, r"failed for.*torch.uint8.*x.float\(\)"),
        "uint8, targets": (lambda: trained(x, whole), TypeError, r"floating-point targets, got torch.uint8.*y.float"),
        "uint8, ood": (lambda: ood(r, whole, whole), TypeError, floating),
        "uint8, imputation": (lambda: impute(r, whole, HALF), TypeError, r"torch.uint8.*pass x.float\(\)"),
        "uint8, neighbours": (lambda: nearest(whole), TypeError, floating),
        "double, training": (lambda: trained(x.double()), TypeError, "torch.float64, the network's.*Convert"),
        "double, post_hoc": (
            lambda: post_hoc(network(), LIKELIHOOD, x.double(), validation=None),
            TypeError,
            "float64.*Convert",
        ),
        # a decoder of other codes or images than its encoder
        "mismatch, call": (lambda: other[0](x), RuntimeError, decoder),
        "mismatch, vae": (lambda: trained(x, method=unfit), RuntimeError, r"codes of shape \(1,\)"),
        "mismatch, training": (lambda: trained(x, method=online(other[0])), RuntimeError, decoder),
        "mismatch, laplace": (lambda: fitted(model=other[0]), RuntimeError, decoder),
        "mismatch, reconstruct": (lambda: point(other[0]).reconstruct(x), RuntimeError, decoder),
        "mismatch, ood": (lambda: ood(point(other[0]), x, x), RuntimeError, decoder),
        "mismatch, types": (
            lambda: Autoencoder(network().encoder, network().decoder.double())(x),
            RuntimeError,
            "torch.float32.*same code size and floating type",
        ),
        "size, call": (lambda: other[1](x), ValueError, size),
        "size, training": (lambda: trained(x, method=online(other[1])), ValueError, size),
        "size, laplace": (lambda: fitted(model=other[1]), ValueError, size),
        "size, reconstruct": (lambda: point(other[1]).reconstruct(x), ValueError, size),
        "size, ood": (lambda: ood(point(other[1]), x, x), ValueError, size),
        "size, imputation": (lambda: impute(point(other[1]), x, HALF, draws=2), ValueError, size),
        # none of what is drawn
        "0 codes": (lambda: r.reconstruct(x, 3, 0), ValueError, "at least one code.*codes=0"),
        "0 codes of draws": (lambda: r.encode(x, 3).codes(0), ValueError, "at least one code.*samples=0"),
        "0 images": (lambda: r.generate(0), ValueError, "at least one image.*n=0"),
        "-1 images": (lambda: r.generate(-1), ValueError, "at least one image.*n=-1"),
        "0 at a time": (lambda: r.encode(x, 3, batch_size=0), ValueError, "at least one input at a time.*batch_size=0"),
        "0 of imputation": (lambda: impute(r, x, HALF, draws=0), ValueError, "draws must be at least 1, got 0"),
        "0 of neighbours": (lambda: nearest(x, samples=0), ValueError, "samples must be one or more.*got 0"),
        "0 of training": (lambda: OnlineUpdates(samples=0), ValueError, "a whole number of at least 1, got 0"),
    }  # fmt: skip
    some: dict[str, Callable[[], object]] = {
        "encode": lambda: r.encode(x, 0),
        "encode, linearised": lambda: r.encode(x, 0, via="linearised"),
        "reconstruct": lambda: r.reconstruct(x, 0),
        "reconstruct, linearised": lambda: r.reconstruct(x, 0, via="linearised"),
        "represent": lambda: r.represent(x, 0),
        "log_prob": lambda: r.log_prob(x, 0),
        "decode": lambda: r.decode(torch.zeros(2, 2), 0),
        "networks": lambda: list(r.networks(0)),
        "tuned": lambda: tuned(r.posterior, x, samples=0),
        "ood": lambda: ood(r, x, x, samples=0),
    }
    return cases | {f"0 of {name}": (call, ValueError, "at least one sample.*samples=0") for name, call in some.items()}


REFUSALS = refusals()


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_work_is_refused_in_words(name: str) -> None:
    call, kind, words = REFUSALS[name]
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    assert re.search(words, str(caught.value), re.DOTALL), caught.value
