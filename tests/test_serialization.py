"""Saving and loading: the same posterior comes back, and nothing else is accepted."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import osculate as osc
from osculate.tensorfiles import digest
from tests.laws import STRUCTURES, assert_close, targets
from tests.zoo import ZOO


def fitted(net: str = "mlp", structure: str = "kron", likelihood: osc.likelihoods.Likelihood | None = None):
    likelihood = likelihood or osc.likelihoods.Categorical()
    model, x = ZOO[net].model(), ZOO[net].x(8)
    return (
        model,
        x,
        osc.laplace(
            model, likelihood, (x, targets(likelihood, model, x)), structure=structure, prior=0.7, refine=False
        ),
    )


def test_one_number_with_a_stride_of_zero_has_a_digest() -> None:
    assert digest({}, {"x": torch.ones(()).expand(1)}) == digest({}, {"x": torch.ones(1)})


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("net", ["mlp", "conv1d", "tied", "sequence", "attention", "frozen"])
def test_the_same_posterior_comes_back(net: str, structure: str, tmp_path: Path) -> None:
    _, x, q = fitted(net, structure)
    osc.save(q, tmp_path / "q.safetensors")
    other = ZOO[net].model(seed=5)
    other.load_state_dict({n: p for n, p in q.model.state_dict().items() if n in q.network.frozen}, strict=False)
    again = osc.load(tmp_path / "q.safetensors", other)
    assert_close(osc.predict(again, x).probs, osc.predict(q, x).probs, 1e-12)
    assert_close(osc.log_evidence(again), osc.log_evidence(q), 1e-12)
    assert_close(
        again.sample(3, torch.Generator().manual_seed(0)), q.sample(3, torch.Generator().manual_seed(0)), 1e-12
    )
    assert again.num_data == q.num_data


PRIORS = [
    *(kind(2.5) for name, kind in osc.priors.REGISTRY.items() if name != "grouped"),
    osc.priors.Grouped({"first": ["0"], "rest": ["2.weight", "2.bias"]}, {"rest": 2.5, "first": 0.7}),
]


@pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: type(prior).__name__)
def test_priors_noise_and_temperature_come_back(prior: osc.priors.Prior, tmp_path: Path) -> None:
    scale = torch.tensor([0.3, 1.0, 2.0], dtype=torch.double)
    structure = "full" if prior.correlated else "diag"
    _, x, q = fitted(structure=structure, likelihood=osc.likelihoods.Gaussian(scale))
    q = q.replace(prior=prior, temperature=0.3, likelihood=q.likelihood.times(2.0))
    osc.save(q, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", ZOO["mlp"].model())
    assert_close(osc.predict(again, x).variance, osc.predict(q, x).variance, 1e-12)
    assert type(again.prior) is type(prior)
    assert again.prior.settings == q.prior.settings


def test_the_dtype_of_the_file_wins_and_the_given_model_is_untouched(tmp_path: Path) -> None:
    _, x, q = fitted()
    osc.save(q, tmp_path / "q.safetensors")
    model = ZOO["mlp"].model(seed=7).float()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert osc.load(tmp_path / "q.safetensors", model).mean.dtype == torch.double
    assert all(
        torch.equal(value, before[name]) and value.dtype == torch.float for name, value in model.state_dict().items()
    )


def test_no_half_file_is_left_by_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, q = fitted()
    osc.save(q, tmp_path / "q.safetensors")
    good = (tmp_path / "q.safetensors").read_bytes()

    def interrupted(tensors: dict, path: Path, metadata: dict) -> None:
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("osculate.tensorfiles.save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        osc.save(q, tmp_path / "q.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["q.safetensors"]
    assert (tmp_path / "q.safetensors").read_bytes() == good


def damaged(path: Path, **changes: object) -> None:
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["osculate"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, metadata={"osculate": json.dumps({**header, **changes})})


def test_refusals(tmp_path: Path) -> None:
    model, _, q = fitted()
    path = tmp_path / "q.safetensors"
    osc.save(q, path)
    whole = path.read_bytes()
    with pytest.raises(FileNotFoundError, match="no file at"):
        osc.load(tmp_path / "other.safetensors", model)
    with pytest.raises(FileNotFoundError, match="folder"):
        osc.save(q, tmp_path / "nowhere" / "q.safetensors")
    with pytest.raises(ValueError, match=r"another network: '0.weight' has shape \(6, 4\) in the file and \(7, 4\)"):
        osc.load(path, nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3)))
    with pytest.raises(ValueError, match="another network: '0.bias' has shape .* in the file and none"):
        osc.load(path, nn.Sequential(nn.Linear(4, 6, bias=False), nn.Tanh(), nn.Linear(6, 3)))
    with pytest.warns(UserWarning, match="prints differently"):
        osc.load(path, nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)))
    for size in (0, 4, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="truncated or not a safetensors file"):
            osc.load(path, model)
    path.write_bytes(whole)
    damaged(path, format=99)
    with pytest.raises(ValueError, match="format 99"):
        osc.load(path, model)
    path.write_bytes(whole)
    damaged(path, structure={"name": "evil", "fields": {}})
    with pytest.raises(ValueError, match="unknown structure 'evil'"):
        osc.load(path, model)
    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="not a posterior"):
        osc.load(path, model)


def test_only_what_has_a_name_is_saved(tmp_path: Path) -> None:
    class Mine(osc.likelihoods.Categorical):
        """Somebody's own."""

    _, _, q = fitted(likelihood=Mine())
    with pytest.raises(TypeError, match="Mine is not one of"):
        osc.save(q, tmp_path / "q.safetensors")

    class Own(osc.posteriors.Point):
        """A posterior of somebody's own."""

    for thing, name in ((Own(q.model, CLASSES), "got Own"), (q.model, "got Sequential")):
        with pytest.raises(TypeError, match=name):
            osc.save(thing, tmp_path / "q.safetensors")
    assert not list(tmp_path.iterdir())


CLASSES = osc.likelihoods.Categorical()
SAMPLES = {
    "point": lambda models: osc.posteriors.Point(models[0], CLASSES),
    "ensemble": lambda models: osc.posteriors.Ensemble(models, CLASSES),
    "dropout": lambda models: osc.posteriors.Dropout(models[0], CLASSES),
    "snapshots": lambda models: snapshots(models[0]),
    "chains": lambda models: osc.posteriors.Chains(snapshots(models[0]).network, CLASSES, torch.randn(2, 5, 27)),
}


def with_dropout(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Dropout(0.3), nn.Linear(6, 3)).eval()


def snapshots(model: nn.Module) -> osc.posteriors.Snapshots:
    network = osc.parameters.Network(model, ["0.weight", "3.bias"])
    return osc.posteriors.Snapshots(network, CLASSES, torch.rand(27), torch.randn(4, 27))


@pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES)
def test_posteriors_made_of_samples_come_back(make: Callable, tmp_path: Path) -> None:
    q, x = make([with_dropout(n) for n in range(3)]), torch.randn(5, 4)
    osc.save(q, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", with_dropout(9).train())
    assert type(again) is type(q)
    assert again.ways == q.ways
    for way in q.ways:
        first, second = (
            osc.predict(each, x, via=way, samples=4, generator=torch.Generator().manual_seed(0)).probs
            for each in (q, again)
        )
        assert_close(second, first, 1e-6)
    with pytest.warns(UserWarning, match="prints"), pytest.raises(ValueError, match="another network: '0.weight'"):
        osc.load(tmp_path / "q.safetensors", nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.Dropout(0.3)))
    damaged(tmp_path / "q.safetensors", posterior="evil", format=2)
    with pytest.raises(ValueError, match="unknown kind of posterior 'evil'"):
        osc.load(tmp_path / "q.safetensors", with_dropout(9))


def test_a_posterior_is_loaded_in_evaluation_mode(tmp_path: Path) -> None:
    """A network that was just built is in training mode; with its dropout active, the posterior would be at random."""
    model, x = with_dropout(0), torch.randn(5, 4)
    q = osc.laplace(model, CLASSES, (x, torch.arange(5) % 3), prior=1.0, refine=False)
    osc.save(q, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", with_dropout(1).train())
    assert_close(osc.predict(again, x).probs, osc.predict(q, x).probs, 1e-6)
