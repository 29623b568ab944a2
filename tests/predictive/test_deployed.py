"""Deployed posteriors: the numbers of osc.predict, in Python, in exported programs and in ONNX Runtime."""

import io
import logging
import threading
import warnings
from functools import cache
from itertools import cycle
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.inputs import take
from osculate.predictive.deployed import Deployed, written_out_root
from tests.errors import says
from tests.laws import assert_close, targets
from tests.zoo import ZOO

BATCHES = (1, 7, 256)
slow, release = pytest.mark.slow, pytest.mark.release
FITS: list[dict[str, object]] = [
    {"structure": structure, "subset": subset}
    for structure in ("kron", "ekfac", "diag", "full", "block")
    for subset in ("all", "last_layer", ["2"], osc.Subnetwork(0.5, "magnitude"))
    if structure in ("diag", "full") or not isinstance(subset, osc.Subnetwork)
]


def mlp(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, outputs))


def cnn(outputs: int) -> nn.Module:
    """Strides, dilation, groups, asymmetric kernels, padding by name, and every kind of pooling."""
    return nn.Sequential(
        nn.Conv2d(2, 4, (1, 2), padding=(0, 1)),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
        nn.Conv2d(4, 4, (3, 2), padding="same", groups=2, bias=False),
        nn.GELU(),
        nn.AvgPool2d(2, 1),
        nn.Conv2d(4, 3, 2, stride=2, dilation=2),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d((2, 1)),
        nn.Flatten(),
        nn.Linear(6, outputs),
    )


def residual(outputs: int) -> nn.Module:
    return osc.networks.PreActResNet(outputs, channels=2, width=2, blocks=(1, 1))


NETWORKS = {"mlp": (mlp, (4,)), "cnn": (cnn, (2, 11, 9)), "residual": (residual, (2, 11, 9))}
LIKELIHOODS = {
    "categorical": (osc.likelihoods.Categorical(), 3),
    "bernoulli": (osc.likelihoods.Bernoulli(), 2),
    "gaussian": (osc.likelihoods.Gaussian(0.5), 2),
    "poisson": (osc.likelihoods.Poisson(), 1),
    "heteroscedastic": (osc.likelihoods.HeteroscedasticGaussian(), 2),
}


@cache
def posterior(
    network: str = "mlp", likelihood: str = "categorical", refine: bool = False, double: bool = False, **fit: object
) -> tuple[osc.posteriors.Gaussian, Tensor]:
    torch.manual_seed(0)
    make, shape = NETWORKS[network]
    density, outputs = LIKELIHOODS[likelihood]
    dtype = torch.double if double else torch.float
    model, x = make(outputs).to(dtype).eval(), torch.randn(max(BATCHES), *shape, dtype=dtype)
    y = targets(density, model, x[:40])
    return osc.laplace(model, density, (x[:40], y), refine=refine, **fit), x


def expected(q: osc.posteriors.Gaussian, x: object, link: str | None = None) -> tuple[Tensor, Tensor]:
    """What the module has to return, by the library's own functions."""
    variance = osc.functional_variance(q, x, diagonal=True)
    if q.likelihood.links:
        return osc.predict(q, x, link=link).probs, variance
    return osc.function_posterior(q, x).mean.reshape(variance.shape), variance


def assert_agrees(found: tuple[Tensor, Tensor], truth: tuple[Tensor, Tensor]) -> None:
    for one, other in zip(found, truth, strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=1e-4, atol=1e-6)


def check(q: osc.posteriors.Gaussian, x: Tensor, module: Deployed | None = None) -> None:
    module = module or osc.deploy(q)
    for size in BATCHES:
        assert_agrees(module(x[:size]), expected(q, x[:size]))


@pytest.mark.parametrize(
    ("network", "likelihood", "fit"),
    [
        ("mlp", "categorical", {"structure": "kron"}),
        ("mlp", "categorical", {"structure": "diag"}),
        ("mlp", "categorical", {"structure": "kron", "subset": "last_layer"}),
        *[
            pytest.param("mlp", likelihood, fit, marks=mark)
            for likelihood in LIKELIHOODS
            for fit, mark in zip(FITS, cycle([slow, release, release] if likelihood == "categorical" else [release]))
        ],
        *[
            pytest.param(network, likelihood, {"structure": structure}, marks=release)
            for network in ("cnn", "residual")
            for likelihood in ("categorical", "gaussian")
            for structure in ("kron", "diag")
        ],
    ],
)
@pytest.mark.parametrize("prior", [1.0, pytest.param("evidence", marks=release)])
def test_the_numbers_are_those_of_predict(network: str, likelihood: str, fit: dict, prior: object) -> None:
    subset = fit.get("subset")
    fit = {**fit, **({"subset": tuple(subset)} if isinstance(subset, list) else {})}
    if prior == "evidence" and isinstance(subset, osc.Subnetwork):
        pytest.skip("an evidence of a subnetwork is that of its own prior")
    check(*posterior(network, likelihood, prior=prior, **fit))


@pytest.mark.parametrize("likelihood", ["categorical", "gaussian", pytest.param("bernoulli", marks=slow)])
@pytest.mark.parametrize("structure", ["kron", pytest.param("diag", marks=release)])
@pytest.mark.parametrize("subset", ["last_layer", pytest.param("all", marks=slow)])
def test_refined_posteriors(likelihood: str, structure: str, subset: str) -> None:
    q, x = posterior("mlp", likelihood, True, structure=structure, subset=subset)
    assert q.offset is not None
    check(q, x)


@release
@pytest.mark.parametrize("network", ["cnn", "residual"])
@pytest.mark.parametrize("structure", ["kron", "diag"])
def test_refined_posteriors_of_convolutions(network: str, structure: str) -> None:
    check(*posterior(network, "categorical", True, structure=structure))


@pytest.mark.slow
@pytest.mark.parametrize("subset", ["last_layer", "all"])
def test_double_precision_is_kept(subset: str) -> None:
    q, x = posterior(double=True, subset=subset, prior=1.0)
    for found, truth in zip(osc.deploy(q)(x), expected(q, x), strict=True):
        assert found.dtype == torch.double
        assert_close(found, truth.detach(), 1e-10)


@pytest.mark.parametrize("link", ["probit", "bridge", "mean_field"])
def test_links(link: str) -> None:
    q, x = posterior(structure="diag", subset="last_layer", prior=1.0)
    assert_agrees(osc.deploy(q, link=link)(x[:7]), expected(q, x[:7], link))


#: Networks of the zoo that end in a plain layer, and those whose layers all have a graph.
ENDS = ("conv1d", "sequence", "attention", "lstm", "unet", "gpt", "derived", "two_inputs", "named_inputs")
LAYERS = ("conv1d", "conv3d", "conv_transpose2d", "tied", "bias_first", "resnet", "fixup_resnet", "rms_norm", "frozen")


@pytest.mark.parametrize(
    ("name", "subset"),
    [
        ("unet", "last_layer"),
        ("two_inputs", "last_layer"),
        *[pytest.param(name, "last_layer", marks=slow) for name in ENDS if name not in ("unet", "two_inputs")],
        *[
            pytest.param(name, "all", marks=slow if name in ("conv1d", "tied", "rms_norm") else release)
            for name in LAYERS
        ],
    ],
)
def test_networks_of_any_kind(name: str, subset: str) -> None:
    case, likelihood = ZOO[name], osc.likelihoods.Gaussian()
    model, x = case.model(), case.x(20)
    q = osc.laplace(model, likelihood, (x, targets(likelihood, model, x)), prior=1.0, refine=False, subset=subset)
    module = osc.deploy(q)
    for size in (1, 7, 20):
        some = take(x, slice(size))
        found, variance = module(some)
        assert_close(found, osc.predict(q, some, noise=False).mean.detach(), 1e-5)
        assert_close(variance, osc.functional_variance(q, some, diagonal=True).detach(), 1e-5)


@pytest.mark.release
def test_classes_of_pixels() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 3, stride=2, dilation=2, padding=1))
    x, likelihood = torch.randn(6, 1, 9, 8), osc.likelihoods.Categorical(class_axis=1)
    y = torch.randint(2, model(x)[:, 0].shape)
    for subset in ("last_layer", "all"):
        q = osc.laplace(model, likelihood, (x, y), prior=1.0, refine=False, subset=subset)
        module = osc.deploy(q)
        assert_agrees(module(x[:5]), expected(q, x[:5]))
        assert module(x)[0].shape == (6, *y.shape[1:], 2)


@pytest.mark.slow
def test_nothing_changes_it() -> None:
    q, x = posterior(structure="kron", prior=1.0)
    model = mlp(3)
    for module in (osc.deploy(q), osc.deploy(posterior(subset="last_layer", prior=1.0)[0])):
        before = module(x[:3])
        assert module.train() is module
        assert not any(layer.training for layer in module.modules())
        assert not any(parameter.requires_grad for parameter in module.parameters())
        assert not any(tensor.requires_grad for tensor in module(x[:3]))
        state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        assert state
        module.load_state_dict(state)
        assert_agrees(module(x[:3]), before)
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("subset", ["last_layer", "all"])
def test_it_needs_neither_the_posterior_nor_the_network(subset: str) -> None:
    torch.manual_seed(0)
    model, x = mlp(3), torch.randn(30, 4)
    q = osc.laplace(model, osc.likelihoods.Categorical(), (x, torch.randint(3, (30,))), subset=subset)
    module = osc.deploy(q)
    before = module(x)
    with torch.no_grad():
        for tensor in (*model.parameters(), *q.network.module.parameters(), *q.structure.tensors().values()):
            tensor.zero_()
    assert_agrees(module(x), before)


@pytest.mark.slow
@pytest.mark.parametrize("subset", ["last_layer", "all"])
def test_files(subset: str, tmp_path: Path) -> None:
    q, x = posterior(subset=subset, prior=1.0)
    module = osc.deploy(q)
    torch.save(module, tmp_path / "module.pt")
    assert_agrees(torch.load(tmp_path / "module.pt", weights_only=False)(x[:7]), module(x[:7]))
    osc.save(q, tmp_path / "q.safetensors")
    loaded = osc.load(tmp_path / "q.safetensors", mlp(3))
    with pytest.raises(ValueError, match=says("from a file", "osc.deploy(q, X[:3])")):
        osc.deploy(loaded)
    assert_agrees(osc.deploy(loaded, x[:1])(x[:7]), module(x[:7]))


def test_threads() -> None:
    q, x = posterior(subset="last_layer", prior=1.0)
    module, found = osc.deploy(q), {}

    def run(number: int) -> None:
        found[number] = [module(x[number : number + 5]) for _ in range(20)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, results in found.items():
        for each in results:
            assert_agrees(each, expected(q, x[number : number + 5]))


def test_errors() -> None:
    q, x = posterior(prior=1.0, structure="kron")
    module = osc.deploy(q)
    for wrong in (x[:, :3], x[0], x.double(), (x, x)):
        with pytest.raises(ValueError, match=says("inputs of shape (N, 4) and torch.float32, got")):
            module(wrong)
    with pytest.raises(TypeError, match=says("osc.deploy needs a Gaussian posterior, got Point")):
        osc.deploy(osc.posteriors.Point(mlp(3), q.likelihood))
    with pytest.raises(ValueError, match=says("structure='low_rank'", "'kron', 'diag' or 'full'")):
        osc.deploy(posterior(prior=1.0, structure="low_rank")[0])
    with pytest.raises(ValueError, match=says("unknown link", "probit")):
        osc.deploy(q, link="none")
    with pytest.raises(ValueError, match=says("link='mc'", "Gaussian has none")):
        osc.deploy(posterior(likelihood="gaussian", prior=1.0)[0], link="mc")


@pytest.mark.parametrize("subset", ["last_layer", "all"])
def test_an_empty_batch_and_other_types(subset: str) -> None:
    q, x = posterior(subset=subset, prior=1.0)
    module = osc.deploy(q)
    assert [tuple(each.shape) for each in module(x[:0])] == [(0, 3), (0, 3)]
    for wrong in (x.long(), x[0], x.double()):
        with pytest.raises(ValueError, match=says("made for inputs of shape (N, ", "and torch.float32, got")):
            module(wrong)
    for convert in (module.double, module.half, lambda: module.to(torch.bfloat16)):
        with pytest.raises(ValueError, match=says("keeps its data type, torch.float32")):
            convert()
    assert_agrees(module.to("cpu").float()(x[:7]), expected(q, x[:7]))


def test_a_layer_without_a_graph_is_named() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(1, 2, 3), nn.LeakyReLU(inplace=True), nn.FractionalMaxPool2d((1, 1), (2, 3)))
    model[2] = nn.Upsample(8)
    model = nn.Sequential(*model, nn.Flatten(), nn.Linear(16, 1))
    x = torch.randn(20, 1, 6)
    q = osc.laplace(model, osc.likelihoods.Gaussian(), (x, torch.randn(20, 1)), prior=1.0, refine=False)
    with pytest.raises(ValueError, match=says("the layer '2' (Upsample)", "subset='last_layer'")):
        osc.deploy(q)


def test_the_written_out_root_is_that_of_cholesky() -> None:
    a = torch.randn(5, 4, 6, dtype=torch.double)
    assert_close(written_out_root(a @ a.mT), torch.linalg.cholesky(a @ a.mT), 1e-10)
    assert not written_out_root(torch.zeros(2, 3, 3)).any()


def exported(module: Deployed, x: Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(module, (x[:5],), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})


@pytest.mark.parametrize(
    ("network", "likelihood", "subset"),
    [
        ("mlp", "categorical", "last_layer"),
        *[
            pytest.param(network, likelihood, subset, marks=release)
            for network in NETWORKS
            for likelihood in ("categorical", "gaussian")
            for subset in ("all", "last_layer")
        ],
    ],
)
def test_exported_programs(network: str, likelihood: str, subset: str) -> None:
    q, x = posterior(network, likelihood, True, subset=subset)
    file = io.BytesIO()
    torch.export.save(exported(osc.deploy(q), x), file)
    file.seek(0)
    check(q, x, torch.export.load(file).module())


@pytest.mark.parametrize(
    ("network", "likelihood", "refine", "fit"),
    [
        pytest.param("mlp", "categorical", True, {"structure": "kron", "subset": "last_layer"}, marks=release),
        pytest.param("residual", "categorical", False, {"structure": "diag", "subset": "last_layer"}, marks=release),
        pytest.param("mlp", "gaussian", True, {"structure": "kron"}, marks=slow),
        pytest.param("mlp", "bernoulli", False, {"structure": "diag"}, marks=release),
        pytest.param("cnn", "categorical", True, {"structure": "kron"}, marks=release),
        *[
            pytest.param(network, likelihood, refine, {"structure": structure, "subset": subset}, marks=release)
            for network in NETWORKS
            for likelihood in ("categorical", "gaussian", "bernoulli")
            for structure in ("kron", "diag")
            for subset in ("all", "last_layer")
            for refine in (False, True)
        ],
    ],
)
@pytest.mark.parametrize("prior", [1.0, pytest.param("evidence", marks=release)])
def test_onnx_runtime(
    network: str, likelihood: str, refine: bool, fit: dict, prior: float | str, tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript")
    q, x = posterior(network, likelihood, refine, prior=prior, **fit)
    check(q, x, onnx_runtime(tmp_path, osc.deploy(q), x))


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=release) for name in ("attention", "vit")), pytest.param("unet", marks=slow)]
)
def test_onnx_runtime_for_last_layers_of_any_network(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    case, likelihood = ZOO[name], osc.likelihoods.Gaussian()
    model, x = case.model().float(), case.x(max(BATCHES)).float()
    y = targets(likelihood, model, x[:20])
    q = osc.laplace(model, likelihood, (x[:20], y), prior=1.0, refine=False, subset="last_layer")
    check(q, x, onnx_runtime(tmp_path, osc.deploy(q), x))


def onnx_runtime(folder: Path, module: Deployed, x: Tensor):
    runtime = pytest.importorskip("onnxruntime")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    shapes = {"x": {0: torch.export.Dim("batch")}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(module, (x[:5],), dynamo=True, dynamic_shapes=shapes, verbose=False)
    program.save(folder / "module.onnx")
    session = runtime.InferenceSession(folder / "module.onnx")
    name = session.get_inputs()[0].name
    return lambda x: tuple(map(torch.from_numpy, session.run(None, {name: x.numpy()})))
