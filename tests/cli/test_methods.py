"""train --method, of every method: what it leaves predicts and is evaluated; what makes no sense is refused."""

import ast
import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

import osculate as osc
from osculate.cli import train
from osculate.cli.after_training import likeliest_noise, warn_if_worse
from osculate.cli.checkpoint import Card, read_model
from osculate.cli.methods import METHODS, ROUNDS, MethodOptions, SettingOptions, require_distinct_options, rows, taking
from osculate.cli.predict import PosteriorOptions
from osculate.cli.train import network_name, network_options
from osculate.methods import MAP, Method, Option
from osculate.posteriors import Point
from osculate.tasks.calibration import columns
from osculate.training import Settings
from tests.errors import says

#: The method of autoencoders is tested with them.
NAMES = tuple(name for name in METHODS if name != "vae")
OWN = """
from torch import nn

def make(input_shape, outputs):
    inputs = 1
    for size in input_shape:
        inputs *= size
    first = nn.Linear(inputs, 6)
    return nn.Sequential(nn.Flatten(), first, nn.Tanh(), nn.Dropout(0.1), nn.Linear(6, outputs))
"""
DIGITS = ("--data", "digits", "--train-size", 120, "--validation-size", 30)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A network of the user's own, in the current folder."""
    (tmp_path / "my_factory.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "my_factory", raising=False)
    return "my_factory:make"


def few(method: str) -> tuple[Any, ...]:
    """A short training."""
    if "batch_size" in METHODS[method].refused:
        return ("--method", method, "--epochs", 9)
    members = ("--members", 2) if method in taking("members") else ()
    return ("--method", method, "--epochs", 4, "--batch-size", 16, *members)


def posterior_of(method: str) -> type:
    """The posterior that a method says it has."""
    hints = get_type_hints(METHODS[method].result)
    assert "return" in hints, f"{METHODS[method].__name__}.result needs a return annotation, the class of its posterior"
    return hints["return"]


def evaluation(folder: Path) -> Any:
    return json.loads((folder / "evaluation.json").read_text())


def marked() -> list[Any]:
    """All methods: one for each kind of posterior is in `make check`, HMC and the others wait for a release."""
    first = set({posterior_of(name): name for name in reversed(NAMES)}.values()) - {"hmc"}
    return [pytest.param(name, marks=[pytest.mark.release] * (name not in first)) for name in NAMES]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", marked())
def test_a_classifier_of_ones_own(run: Any, own: str, tmp_path: Path, method: str, capsys: Any) -> None:
    out, model = tmp_path / "run", ("--model", own)
    options = (*DIGITS, *few(method), *model, "--output", out)
    assert run("train", *options) == 0, capsys.readouterr().err
    q, card = PosteriorOptions(out, own).open("cpu")
    assert type(q) is posterior_of(method)
    assert card.method == method
    assert run("predict", "--posterior", out, *model, "--samples", 5) == 0
    with np.load(out / "predictions.npz") as found:
        np.testing.assert_allclose(found["probabilities"].sum(1), 1, rtol=1e-4)
        assert found["mean"].shape == (600, 10)
        assert ("functional_variance" in found) == (posterior_of(method) is not Point)
    assert run("evaluate", "--posterior", out, *model, "--samples", 5) == 0
    found = set(evaluation(out)) - {"data", "test_data", "versions", "difference", "finding"}
    assert found == set(rows(method)[: 1 + (posterior_of(method) is not Point)])
    other = "l2m" if method == "map" else "map"
    assert run("train", *DIGITS, *few(other), *model, "--output", out, "--resume") == 2
    assert f"--method {method}" in capsys.readouterr().err


@pytest.mark.release
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", marked())
def test_a_regression_with_a_built_in_network(run: Any, arrays: Path, tmp_path: Path, method: str, capsys: Any) -> None:
    out, again = tmp_path / "run", tmp_path / "again"
    assert run("train", "--data", arrays, *few(method), "--model-options.hidden", "[4]", "--output", out) == 0
    q, card = PosteriorOptions(out).open("cpu")
    assert type(q) is posterior_of(method)
    if q.likelihood is not None:
        assert float(q.likelihood.scale) == pytest.approx(card.noise)
    if method in taking("temperature"):
        assert float(q.temperature) == (1 if method in ("online_laplace", "ivon", "vogn") else 0.1)
    assert (card.noise == 0.3) == (method == "hmc"), "of all others the noise is that of held-out data"
    assert run("predict", "--posterior", out, "--samples", 5) == 0
    with np.load(out / "predictions.npz") as found:
        assert (found["sd"] > found["sd_function"]).all()
    assert run("evaluate", "--posterior", out) == 0
    trained = json.loads((out / "metrics.json").read_text())["train"]
    row = rows(method)[posterior_of(method) is not Point]
    assert evaluation(out)[row] == trained["test"], "evaluate gives the scores that train has reported"
    assert {"rmse", "log_likelihood"} <= set(evaluation(out)[row])
    assert run("train", "--config", out / "config.yaml", "--output", again) == 0, capsys.readouterr().err
    for name in ("model.safetensors", *(() if posterior_of(method) is Point else ("posterior.safetensors",))):
        first, second = load_file(out / name), load_file(again / name)
        assert all(torch.equal(first[key], second[key]) for key in first)


# ---- settings -----------------------------------------------------------------------------------------------------


def test_settings_that_the_user_has_not_named_are_what_the_method_needs() -> None:
    nothing = SettingOptions()
    assert nothing.settings(MethodOptions("map"), 3) == Settings(lr="auto", seed=3)
    assert nothing.settings(MethodOptions("vae"), 3) == Settings(seed=3), "its loss is not that of an optimiser alone"
    assert nothing.settings(MethodOptions("ivon"), 0).lr == 0.3
    assert nothing.settings(MethodOptions("ivon"), 0, noise=0.5).lr == 0.3, "it knows the unit of its steps"
    assert nothing.settings(MethodOptions("swag"), 0, noise=0.5).lr == pytest.approx(0.0125)
    path = nothing.settings(MethodOptions("swag"), 0)
    assert (path.optimizer, path.schedule) == ("sgd", "constant")
    assert nothing.settings(MethodOptions("hmc"), 0).epochs == 1500
    named = SettingOptions(lr=1e-3, epochs=20)  # what happens to be the usual value, too
    assert named.settings(MethodOptions("ivon"), 0, noise=0.5).lr == 1e-3
    assert named.settings(MethodOptions("swag"), 0).lr == 1e-3


@pytest.mark.parametrize(
    ("num_data", "batch_size", "steps"),
    [(20, 5, 2000), (80, 20, 2000), (1078, 32, 2006), (4999, 32, 3140), (5000, 128, 2000), (60_000, 128, 9380)],
)
def test_a_training_of_few_data_has_the_steps_that_it_needs(num_data: int, batch_size: int, steps: int) -> None:
    found = SettingOptions().settings(MethodOptions("ivon"), 0, num_data=num_data)
    assert found.batch_size == batch_size
    assert found.epochs * -(-num_data // batch_size) == steps
    assert SettingOptions(epochs=3).settings(MethodOptions("map"), 0, num_data=num_data).epochs == 3
    assert SettingOptions(batch_size=20).settings(MethodOptions(), 0, num_data=20).epochs == 500, "at most so many"
    chains = SettingOptions().settings(MethodOptions("hmc"), 0, num_data=num_data)
    assert (chains.epochs, chains.batch_size) == (1500, 128)


def test_training_goes_on_for_rounds_unless_its_length_was_named() -> None:
    assert SettingOptions().most_rounds(MethodOptions(), 20) == ROUNDS
    assert SettingOptions().most_rounds(MethodOptions(), 0) == 1, "without held-out data"
    assert SettingOptions().most_rounds(MethodOptions("ivon"), 20) == 1
    assert SettingOptions(epochs=5).most_rounds(MethodOptions(), 20) == 1
    assert SettingOptions(patience=5).most_rounds(MethodOptions(), 20) == 1
    assert SettingOptions(epochs=5, rounds=4).most_rounds(MethodOptions(), 20) == 4


@pytest.mark.slow
def test_rate_and_rounds_are_written_down_and_resumed(run: Any, arrays: Path, tmp_path: Path, capsys: Any) -> None:
    words = ("train", "--data", arrays, "--model-options.hidden", "[4]", "--batch-size", 2, "--output", tmp_path)
    assert run(*words, "--epochs", 7, "--rounds", 2) == 0
    said = capsys.readouterr()
    assert "lr auto" in said.out
    assert "at most 2 rounds" in said.out
    rate = re.search(r"trained: epochs 14, lr ([\d.]+), rounds 2, kept epoch", said.out)
    assert rate
    assert float(rate[1]) > 0.001
    assert "still falling after 2 rounds of 7 epochs" in said.err
    assert "--rounds 4 --resume" in said.err
    written = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert (written["lr"], written["rounds"], written["epochs"]) == ("auto", 2, 7)
    trained = json.loads((tmp_path / "metrics.json").read_text())["train"]
    assert (trained["rounds"], trained["epochs"]) == (2, 14)
    assert trained["lr"] == pytest.approx(float(rate[1]), rel=1e-2)
    assert run(*words, "--epochs", 7, "--rounds", 4, "--resume") == 0
    assert len((tmp_path / "training.csv").read_text().splitlines()) == 29
    assert run(*words, "--epochs", 7, "--resume") == 0
    assert "at most 4 rounds" in capsys.readouterr().out, "as it is written down"
    assert run(*words, "--method", "ivon", "--rounds", 2, "--output", tmp_path / "ivon") == 2
    assert "rounds=2 is not for IVON" in capsys.readouterr().err


def test_a_classifier_in_training_is_colder_than_bayes() -> None:
    card = Card("mlp", {}, (2,), 3, None, {}, {"classes": ["a", "b", "c"]})
    for given, expected in ((None, 0.002), (0.5, 0.5)):
        how = MethodOptions("online_laplace", temperature=given)
        assert how.make(lambda number: card.network(None), card, 1.0).temperature == expected
    assert not MethodOptions("online_laplace").chooses_temperature(replace(card, facts={})), "of real values it stays"


@pytest.mark.slow
def test_the_temperature_of_the_result_is_chosen_on_held_out_data(run: Any, tmp_path: Path) -> None:
    options = (*DIGITS, *few("online_laplace"), "--model", "cnn", "--model-options.width", 2, "--output", tmp_path)
    assert run("train", *options) == 0
    q, _ = PosteriorOptions(tmp_path).open("cpu")
    assert q.temperature > 0
    assert float(q.temperature) != 0.002


def test_a_result_worse_than_ignorance_or_its_mean_warns() -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(2, 3), torch.randn(200, 2)
    likelihood = osc.likelihoods.Categorical()
    y = torch.distributions.Categorical(logits=4 * model(x)).sample()
    card = Card("mlp", {}, (2,), 3, None, {}, {"classes": ["a", "b", "c"]})

    def said(q: Any, method: str) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_if_worse(q, card, MethodOptions(method), (x, y), columns(q, (x, y), 500, False, "", {}))
        return [str(each.message) for each in caught]

    good = osc.laplace(model, likelihood, (x, y), prior=1.0)
    assert said(good, "online_laplace") == []
    assert said(Point(model, likelihood), "map") == []
    *_, message = said(good.replace(temperature=1e5, prior=osc.priors.Isotropic(1e-4)), "online_laplace")
    assert re.search(r"200 validation data worse than its own mean, by .* ± .*lower --temperature.*--via mode", message)
    with torch.no_grad():
        model.weight.mul_(-4)
    (message,) = said(Point(model, likelihood), "map")
    assert re.search(r"worse than the class frequencies, by [\d.]+ ± [\d.]+ .*with another --lr, or look at", message)


def test_what_follows_from_the_method_is_written_down() -> None:
    assert MethodOptions("ivon").resolved(60).temperature == 0.1
    assert MethodOptions("ivon").resolved(60, True).temperature == 1
    assert MethodOptions("mean_field_vi").resolved(60, True).temperature == 0.1
    assert MethodOptions("ivon", temperature=0.5).resolved(60).temperature == 0.5
    assert MethodOptions("map").resolved(60) == MethodOptions("map")
    assert MethodOptions("hmc").resolved(60).warmup == 20
    assert MethodOptions("hmc").resolved(90, True, {"epochs": 60}).warmup == 20, "of a run before this was written down"
    assert MethodOptions("hmc").resolved(90, True, {"epochs": 60, "warmup": 7}).warmup == 7
    assert MethodOptions("hmc", warmup=5).resolved(90, True, {"warmup": 7}).warmup == 5


def test_what_the_evidence_has_learned_is_kept(run: Any, arrays: Path, tmp_path: Path, capsys: Any) -> None:
    words = ("train", "--data", arrays, "--method", "levenberg_marquardt", "--noise", 0.9, "--output", tmp_path)
    assert run(*words, "--epochs", 8) == 0
    assert "prior layerwise" in capsys.readouterr().out
    q, card = PosteriorOptions(tmp_path).open("cpu")
    assert card.options == {"hidden": [20]}
    assert card.noise == pytest.approx(float(q.likelihood.scale))
    assert card.noise < 0.6, "the noise scale moves from that of --noise"
    assert q.prior.precision.shape == (4,), "one for each tensor"
    assert run(*words, "--epochs", 10, "--resume") == 0
    assert len((tmp_path / "training.csv").read_text().splitlines()) == 11
    assert run(*words, "--epochs", 1, "--prior", 2.0, "--output", tmp_path / "one") == 0
    assert PosteriorOptions(tmp_path / "one").open("cpu")[0].prior.precision.ndim == 0, "the prior that was asked for"


@pytest.mark.slow
def test_chains_that_are_resumed_with_more_epochs_go_on_and_are_the_longer_run(run: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    np.savez(tmp_path / "line.npz", X=random.normal(size=(30, 1)), y=random.normal(size=(30, 1)))
    line = ("train", "--data", tmp_path / "line.npz", "--method", "hmc", "--model-options.hidden", "[]")
    assert run(*line, "--epochs", 9, "--output", tmp_path / "run") == 0
    assert run(*line, "--epochs", 15, "--output", tmp_path / "run", "--resume") == 0
    assert run(*line, "--epochs", 15, "--warmup", 3, "--output", tmp_path / "whole") == 0
    one, other = (load_file(tmp_path / name / "posterior.safetensors") for name in ("run", "whole"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert PosteriorOptions(tmp_path / "run").open("cpu")[0].thetas.shape[1] == 12


@pytest.mark.parametrize("method", METHODS)
def test_the_written_settings_give_themselves_again(method: str) -> None:
    how = MethodOptions(method)
    first = SettingOptions(epochs=7).settings(how, 0, noise=0.3)
    assert SettingOptions.of(first, how).settings(how, 0, noise=0.3) == first


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            ("--method", "ivon", "--optimizer", "adam"),
            ("--optimizer adam", "ivon", "its own optimiser", "leave it"),
        ),
        (("--method", "hmc", "--batch-size", 128), ("--batch-size 128", "hmc", "all data at once")),
        (("--method", "swag", "--schedule", "cosine"), ("--schedule cosine", "swag", "shrink")),
        (("--method", "swag", "--patience", 3), ("--patience 3", "swag")),
        (("--method", "l2m", "--optimizer", "sgd"), ("SGD", "Adam")),
        (("--method", "l2m", "--batch-size", 500), ("batch", "all of the")),
        (("--method", "swag", "--epochs", 2), ("epochs=2 gives 1 snapshot", "more epochs")),
        (("--method", "map", "--warmup", 3), ("--warmup 3", "hmc", "map")),
        (("--method", "hmc", "--model", "mlp", "--model-options.hidden", "[400]"), ("HMC", "20,000")),
        (("--members", 3), ("--members 3", "deep_ensemble or randomized_priors", "map")),
        (
            ("--method", "levenberg_marquardt", "--model", "mlp", "--model-options.hidden", "[400]"),
            ("30,010 parameters", "smaller network"),
        ),
        (("--method", "deep_ensemble", "--members", 1), ("at least two", "MAP")),
        (("--method", "swag", "--temperature", 0.5), ("--temperature 0.5", "ivon", "swag")),
        (("--method", "ivon", "--temperature", 0), ("positive", "0")),
        (("--prior", "fan-in"), ("'fan-in'", "fan_in", "precision")),
        (("--prior", -1, "--method", "ivon"), ("positive", "-1")),
        (("--method", "randomized_priors", "--model", "mlp_autoencoder"), ("randomized_priors", "deep_ensemble")),
    ],
)
def test_what_makes_no_sense_is_refused(
    run: Any, tmp_path: Path, words: tuple[Any, ...], parts: tuple[str, ...], capsys: Any
) -> None:
    assert run("train", *DIGITS, *words, "--output", tmp_path) == 2
    err = capsys.readouterr().err
    assert all(part in err for part in parts), err
    assert err.count("\n") == 1


def test_options_of_methods_have_names_and_types_that_do_not_clash() -> None:
    """As every method in the registry is checked when the command is imported."""

    def method(option: str, kind: type) -> type[Method]:
        return type("Other", (MAP,), {"name": "other", "options": {option: Option(kind, "a value")}})

    for option in ("noise", "seed", "model", "epochs", "data", "output", "config"):
        with pytest.raises(ValueError, match=says(f"{option!r}", "'other'", "rename")):
            require_distinct_options({"other": method(option, int)}, train.TAKEN)
    with pytest.raises(ValueError, match=says("'temperature'", "float", "'ivon'", "int", "'other'")):
        require_distinct_options({"ivon": METHODS["ivon"], "other": method("temperature", int)}, train.TAKEN)
    require_distinct_options({**METHODS, "other": method("burn_in", int)}, train.TAKEN)


def test_a_new_method_needs_no_change_of_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    attributes = {"name": "other", "hidden_units": (3,), "network_name": "its best draw", "posterior_name": "draws"}
    monkeypatch.setitem(METHODS, "other", type("Other", (MAP,), attributes))
    other = MethodOptions("other")
    assert rows("other") == ("its best draw", "draws")
    assert network_name("auto", other, (1, 8, 8), True) == "mlp"
    assert network_options("mlp", {}, other, chosen=False) == {"hidden": [3]}
    known, demo = set(METHODS) - {"map"}, "demo_autoencoders.py"  # the demo compares four of them
    for path in Path(train.__file__).parent.glob("*.py"):
        constants = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        assert path.name == demo or not known.intersection(v for v in constants if isinstance(v, str)), path.name


@pytest.mark.slow
def test_a_prior_by_its_name_for_methods_of_every_kind(run: Any, arrays: Path, tmp_path: Path, capsys: Any) -> None:
    for method in ("map", "randomized_priors", "ivon", "hmc"):
        assert run("train", "--data", arrays, *few(method), "--prior", "fan_in", "--output", tmp_path / method) == 0
        assert "prior fan_in" in capsys.readouterr().out


# ---- what is special about some -----------------------------------------------------------------------------------


def test_a_network_that_no_one_has_named_is_smooth_for_variational_laplace() -> None:
    how = MethodOptions("variational_laplace")
    for name in ("lenet", "cnn"):
        assert network_options(name, {}, how, chosen=False) == {"activation": "shifted_softplus"}
        assert network_options(name, {}, how, chosen=True) == {}
    assert network_options("mlp", {}, how, chosen=False) == {}


def test_dropout_is_put_into_networks_that_can_have_it() -> None:
    how = MethodOptions("mc_dropout")
    assert network_name("auto", how, (1, 8, 8), True) == "cnn", "no autoencoder, where no one has asked for one"
    for chosen in (False, True):
        for name in ("mlp", "lenet", "cnn"):
            assert network_options(name, {}, how, chosen) == {"dropout": 0.1}
            assert network_options(name, {"dropout": 0.3}, how, chosen) == {"dropout": 0.3}
        assert network_options("my_factory:make", {}, how, chosen) == {}
        assert network_options("mlp_autoencoder", {}, how, chosen) == {"dropout": 0.2}


@pytest.mark.slow
def test_variational_laplace_warns_of_a_network_with_kinks_alone(run: Any, tmp_path: Path, capsys: Any) -> None:
    words = ("train", *DIGITS, *few("variational_laplace"), "--epochs", 1, "--output", tmp_path)
    assert run(*words) == 0
    assert "piecewise linear" not in capsys.readouterr().err
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["model_options"] == {"activation": "shifted_softplus"}
    assert run(*words, "--model", "cnn", "--overwrite") == 0
    assert "piecewise linear" in capsys.readouterr().err


@pytest.mark.slow
def test_a_training_too_short_for_its_method_warns(run: Any, tmp_path: Path, capsys: Any) -> None:
    words = ("train", *DIGITS, "--output", tmp_path, "--batch-size", 30)
    assert run(*words, *few("ivon"), "--batch-size", 30, "--epochs", 2) == 0
    assert "8 steps are few for the variances" in capsys.readouterr().err
    assert run(*words, *few("deep_ensemble"), "--epochs", 2, "--overwrite") == 0
    assert "steps" not in capsys.readouterr().err


def test_members_are_the_networks_of_their_seeds(run: Any, arrays: Path, tmp_path: Path) -> None:
    words = ("train", "--data", arrays, "--epochs", 3, "--batch-size", 16)
    assert run(*words, "--method", "deep_ensemble", "--members", 3, "--seed", 4, "--output", tmp_path / "all") == 0
    assert run(*words, "--seed", 4, "--output", tmp_path / "first") == 0
    alone, first = (load_file(tmp_path / name / "model.safetensors") for name in ("first", "all"))
    assert all(torch.allclose(alone[name], first[name], atol=1e-6) for name in alone)
    q, _ = PosteriorOptions(tmp_path / "all").open("cpu")
    assert len(q.members) == 3


@pytest.mark.release
def test_fit_takes_the_first_member_and_no_draw_and_writes_over_no_training(
    run: Any, arrays: Path, tmp_path: Path, capsys: Any
) -> None:
    for method in ("randomized_priors", "hmc", "ivon"):
        assert run("train", "--data", arrays, *few(method), "--output", tmp_path / method) == 0
    checkpoint = tmp_path / "randomized_priors" / "model.safetensors"
    before = (tmp_path / "randomized_priors" / "posterior.safetensors").read_bytes()
    capsys.readouterr()
    assert run("fit", "--checkpoint", checkpoint) == 2
    err = capsys.readouterr().err
    assert "randomized_priors" in err
    assert "--output" in err
    assert (tmp_path / "randomized_priors" / "posterior.safetensors").read_bytes() == before
    assert run("fit", "--checkpoint", checkpoint, "--output", tmp_path / "fit") == 0
    assert "first of its members" in capsys.readouterr().out
    assert run("evaluate", "--posterior", tmp_path / "fit") == 0
    assert {"first member", "Laplace"} <= set(evaluation(tmp_path / "fit"))
    mean = ("--checkpoint", tmp_path / "ivon" / "model.safetensors", "--output", tmp_path / "fit")
    assert run("fit", *mean) == 0
    assert "the mean of its posterior" in capsys.readouterr().out
    assert run("evaluate", "--posterior", tmp_path / "fit") == 0
    assert {"its mean", "Laplace"} <= set(evaluation(tmp_path / "fit")), "the network is at no mode"
    assert run("fit", "--checkpoint", tmp_path / "hmc" / "model.safetensors", "--output", tmp_path / "fit") == 2
    assert "--method map" in capsys.readouterr().err


@pytest.mark.slow
def test_an_interrupted_ensemble_and_interrupted_chains_resume(
    run: Any, arrays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from osculate.methods import HMC, DeepEnsemble

    for method, kind, name in (("deep_ensemble", DeepEnsemble, "loss"), ("hmc", HMC, "step")):
        words = ("train", "--data", arrays, *few(method), "--output", tmp_path / method)
        assert run(*words, "--output", tmp_path / f"{method}-whole") == 0
        original, calls = getattr(kind, name), []

        def interrupted(self: Any, *args: Any, original: Any = original, calls: list = calls) -> Any:
            calls.append(1)
            if len(calls) == 8:
                raise KeyboardInterrupt
            return original(self, *args)

        monkeypatch.setattr(kind, name, interrupted)
        assert run(*words) == 130
        monkeypatch.setattr(kind, name, original)
        assert run(*words, "--resume") == 0
        whole, resumed = (load_file(tmp_path / f / "posterior.safetensors") for f in (f"{method}-whole", method))
        assert all(torch.equal(whole[key], resumed[key]) for key in whole)


def test_the_likeliest_noise_of_a_mixture() -> None:
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(20, 300, 1, generator=generator)
    y = f[0] + 0.3 * torch.randn(300, 1, generator=generator)
    scales = torch.linspace(0.1, 2, 400)
    density = [torch.distributions.Normal(f, s).log_prob(y).logsumexp(0).sum() for s in scales]
    assert likeliest_noise(f, y) == pytest.approx(float(scales[torch.stack(density).argmax()]), abs=0.01)
    assert likeliest_noise(f[:1], y) == pytest.approx(float((y - f[0]).square().mean().sqrt()))


@pytest.mark.slow
def test_the_noise_of_chains_warns_where_held_out_data_say_another(
    run: Any, arrays: Path, tmp_path: Path, capsys: Any
) -> None:
    words = ("train", "--data", arrays, *few("hmc"), "--model-options.hidden", "[]")
    assert run(*words, "--noise", 5, "--output", tmp_path) == 0
    assert "hmc sampled with" not in capsys.readouterr().err, "what the user has named stays without a word"
    assert run(*words, "--epochs", 90, "--output", tmp_path, "--overwrite") == 0
    assert "train again with --noise 0.0" in capsys.readouterr().err
    _, card = read_model(tmp_path / "model.safetensors")
    assert card is not None
    assert card.noise == 0.3


def test_a_held_out_error_above_the_noise_of_the_training_warns(run: Any, tmp_path: Path, capsys: Any) -> None:
    random = np.random.default_rng(0)
    np.savez(tmp_path / "noise.npz", X=random.normal(size=(60, 3)), y=random.normal(size=(60, 1)))
    words = ("train", "--data", tmp_path / "noise.npz", "--epochs", 1, "--output", tmp_path / "run")
    assert run(*words) == 0
    assert "the error on held-out data is" in (err := capsys.readouterr().err)
    assert "Train again with --noise" in err
    assert run(*words, "--noise", 0.9, "--overwrite") == 0
    assert "held-out" not in capsys.readouterr().err


@pytest.mark.release
@pytest.mark.parametrize("method", ["mean_field_vi", "deep_ensemble"])
def test_autoencoders_with_methods_that_are_not_made_for_them(run: Any, tmp_path: Path, method: str) -> None:
    small = ("--model", "mlp_autoencoder", "--model-options.hidden", "[8]")
    assert run("train", *DIGITS, *few(method), *small, "--output", tmp_path) == 0
    assert run("evaluate", "--posterior", tmp_path, "--task", "ood", "--test-size", 20, "--samples", 3) == 0
