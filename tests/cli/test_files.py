"""train, fit, predict and evaluate, on files: what one writes the next can use, and refuses what does not belong."""

import csv
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

from osculate.cli.checkpoint import read_model, save_model
from osculate.cli.folder import read_config
from osculate.cli.predict import PosteriorOptions
from osculate.curvature.linearisation import Linearisation
from osculate.data import load, read
from osculate.predictive import functional_variance, predict
from osculate.serialization import load as load_posterior, save as save_posterior
from osculate.structures import Kron

OWN = """
from osculate.networks import Output
from torch import nn

def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

class Twice(nn.Sequential):
    def forward(self, x):
        f = super().forward(x)
        return f, f.argmax(1)

def part():
    return Output(Twice(*plain()), 0)

def shaped(input_shape, outputs, width=6):
    first = nn.Linear(input_shape[1] * input_shape[2], width)
    return nn.Sequential(nn.Flatten(), first, nn.Tanh(), nn.Linear(width, outputs))

def normalised():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 10))

def nothing():
    return 3
"""


def scores(folder: Path, *path: str) -> Any:
    content = json.loads((folder / "metrics.json").read_text())
    for part in path:
        content = content[part]
    return content


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of the user's own in the current folder."""
    (tmp_path / "my_networks.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "my_networks", raising=False)
    return tmp_path


# ---- train --------------------------------------------------------------------------------------------------------


def test_train_leaves_the_run_folder(classifier: Path) -> None:
    names = {path.name for path in classifier.iterdir()}
    assert {"config.yaml", "model.safetensors", "metrics.json", "training.csv", "last.ckpt"} <= names
    assert scores(classifier, "train", "test", "accuracy") > 0.5
    tensors, card = read_model(classifier / "model.safetensors")
    assert card is not None
    assert (card.model, card.options, card.input_shape, card.outputs) == ("cnn", {"width": 4}, (1, 8, 8), 10)
    assert card.network().load_state_dict(tensors)


def test_the_written_config_repeats_the_run(run: Any, classifier: Path, tmp_path: Path) -> None:
    assert run("train", "--config", classifier / "config.yaml", "--output", tmp_path / "again") == 0
    first, again = (load_file(f / "model.safetensors") for f in (classifier, tmp_path / "again"))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert yaml.safe_load((classifier / "config.yaml").read_text())["epochs"] == 8


def test_an_interrupted_training_resumes(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--data", "digits", "--train-size", 100, "--epochs", 3, "--output", tmp_path / "run")
    assert run("train", *options, "--output", tmp_path / "whole") == 0
    from osculate.methods.map import MAP

    original, calls = MAP.loss, []

    def interrupted(self: MAP, *args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    monkeypatch.setattr(MAP, "loss", interrupted)
    assert run("train", *options) == 130
    assert not (tmp_path / "run" / "model.safetensors").exists()
    monkeypatch.setattr(MAP, "loss", original)
    assert run("train", *options, "--resume") == 0
    whole, resumed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "run"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.release
def test_the_noise_of_a_regression_is_its_error_on_held_out_data(regressor: Path, arrays: Path) -> None:
    tensors, card = read_model(regressor / "model.safetensors")
    assert card is not None
    model = card.network()
    model.load_state_dict(tensors)
    x, y = read(arrays).validation
    assert card.noise == pytest.approx((model(x) - y).square().mean().sqrt().item(), rel=1e-4)


# ---- fit ----------------------------------------------------------------------------------------------------------


def test_fit_reports_the_evidence_and_the_effective_number_of_parameters(regressor: Path) -> None:
    fit = scores(regressor, "fit")
    assert fit["structure"] == "full"
    assert fit["parameters"] == sum(v.numel() for v in load_file(regressor / "model.safetensors").values())
    assert 0 < fit["effective_parameters"] < fit["parameters"]
    assert fit["effective_parameters"] == pytest.approx(sum(fit["effective_parameters_by_tensor"].values()))
    assert set(fit["prior_precision"]) == set(load_file(regressor / "model.safetensors"))
    assert fit["noise_scale"] > 0
    assert scores(regressor, "train", "test")["rmse"] > 0


def test_a_network_in_other_units_is_told(
    run: Any, regressor: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors, card = read_model(regressor / "model.safetensors")
    assert card is not None
    model = card.network()
    model.load_state_dict(tensors)
    with torch.no_grad():
        list(model.parameters())[-1].add_(10)
    save_model(tmp_path / "model.safetensors", model, card)
    assert run("fit", "--checkpoint", tmp_path, "--refine", "false") == 0
    assert "worse than the mean of the targets: its RMSE is" in capsys.readouterr().err


@pytest.mark.slow
def test_fit_on_another_folder_brings_the_network_along(run: Any, classifier: Path, tmp_path: Path) -> None:
    options = ("--structure", "diag", "--subset", "last_layer", "--tune", "--output", tmp_path / "fit")
    assert run("fit", "--checkpoint", classifier / "model.safetensors", *options) == 0
    assert run("predict", "--posterior", tmp_path / "fit" / "posterior.safetensors") == 0
    assert scores(tmp_path / "fit", "fit", "parameters") == 10 * 8 * 4 + 10


@pytest.mark.parametrize(
    ("name", "words", "facts"),
    [
        ("regressor", ("--evidence", "linear", "--structure", "full"), {"structure": "full"}),
        ("regressor", ("--refine", "false", "--structure", "diag"), {"structure": "diag"}),
        pytest.param("classifier", ("--subset", "0.02"), {"structure": "full"}, marks=pytest.mark.release),
        ("classifier", ("--subset", "*.bias", "--structure", "diag"), {"structure": "diag"}),
    ],
)
def test_choices_of_the_posterior(
    run: Any, request: Any, tmp_path: Path, name: str, words: tuple[str, ...], facts: dict[str, Any], capsys: Any
) -> None:
    folder = request.getfixturevalue(name)
    capsys.readouterr()  # what making it has printed
    assert run("fit", "--checkpoint", folder, *words, "--output", tmp_path) == 0, "the folder is enough"
    found = scores(tmp_path, "fit")
    assert {key: found[key] for key in facts} == facts
    q, _ = PosteriorOptions(tmp_path).open("cpu")
    refined = "--refine" not in words and "--evidence" not in words
    assert (q.offset is not None) == refined
    if name == "regressor":  # the likelihood of the classifier is tempered
        assert ("bound on log evidence" in capsys.readouterr().out) == refined
    if "*.bias" in words:
        assert all(name.endswith(".bias") for name in q.network.space.names)
    if "0.02" in words:
        assert int(q.structure.covered.sum()) == round(0.02 * found["parameters"])


@pytest.mark.slow
def test_a_prior_by_the_layers_that_a_normalisation_undoes(run: Any, own: Path, capsys: Any) -> None:
    options = ("--model", "my_networks:normalised", "--data", "digits", "--train-size", 60, "--epochs", 2)
    assert run("train", *options, "--output", own / "run") == 0
    fit = ("fit", "--checkpoint", own / "run", "--model", "my_networks:normalised", "--prior", "normalised")
    assert run(*fit) == 0, capsys.readouterr().err
    found = scores(own / "run", "fit", "prior_precision")
    assert found["1.weight"] == found["1.bias"] != found["4.weight"]
    assert run(*fit, "--subset", "last_layer") == 2
    assert "--subset last_layer leaves some out" in capsys.readouterr().err


@pytest.mark.slow
def test_what_was_held_out_tunes_the_posterior(run: Any, classifier: Path, tmp_path: Path, capsys: Any) -> None:
    assert run("fit", "--checkpoint", classifier, "--output", tmp_path) == 0
    out = capsys.readouterr().out
    assert all(words in out for words in ("119 validation data, by which it was tuned", "Tuning has set", "difference"))
    found = scores(tmp_path, "fit")
    assert found["temperature"] != 1
    assert found["log_evidence"] is None, "the likelihood is tempered"
    rows = found["validation"]
    assert rows["Laplace, tuned"]["nll"] <= rows["Laplace"]["nll"]
    assert rows["difference"]["nll"] == pytest.approx(rows["Laplace, tuned"]["nll"] - rows["MAP"]["nll"], abs=1e-5)
    options = ("--structure", "diag", "--no-tune", "--refine", "false", "--output", tmp_path)
    assert run("fit", "--checkpoint", classifier, *options) == 0
    assert scores(tmp_path, "fit", "temperature") == 1
    assert scores(tmp_path, "fit", "log_evidence") < 0


def test_tuning_needs_held_out_data(run: Any, own: Path, capsys: Any) -> None:
    save_file(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).state_dict(), own / "weights.safetensors")
    words = ("--model", "my_networks:plain", "--data", "digits", "--validation-size", 0, "--tune")
    assert run("fit", "--checkpoint", own / "weights.safetensors", *words, "--output", own / "out") == 2
    assert "--tune needs held-out data" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["plain", "part"])
def test_a_state_dict_of_the_users_own_is_fitted(run: Any, own: Path, capsys: Any, name: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    save_file(model.state_dict(), own / "weights.safetensors")
    data = ("--data", "digits", "--train-size", 50)
    factory = ("--model", f"my_networks:{name}")
    fit = ("fit", "--checkpoint", own / "weights.safetensors", *factory, *data, "--refine", "false")
    assert run(*fit, "--output", own / "out") == 0
    assert scores(own / "out", "fit", "temperature") == 1
    assert "pass --tune" in capsys.readouterr().out, "who knows what it was trained on"
    posterior = ("--posterior", own / "out" / "posterior.safetensors")
    assert run("predict", *posterior) == 2, "a file must not make code run that the user has not named"
    assert run("predict", *posterior, *factory) == 0
    x = load("digits", train_size=50).test[0]
    with np.load(own / "out" / "predictions.npz") as found:
        np.testing.assert_allclose(found["mean"], model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_one_of_several_outputs_is_trained_fitted_and_predicted(run: Any, own: Path) -> None:
    factory = ("--model", "my_networks:part")
    assert run("train", *factory, "--data", "digits", "--train-size", 50, "--epochs", 1, "--output", own / "run") == 0
    assert run("fit", "--checkpoint", own / "run", *factory, "--refine", "false") == 0
    assert run("evaluate", "--posterior", own / "run", *factory) == 0
    assert set(load_file(own / "run" / "model.safetensors")) == {"network.1.weight", "network.1.bias"}


def test_a_factory_gets_shape_outputs_and_options(run: Any, own: Path) -> None:
    options = ("--model", "my_networks:shaped", "--model-options.width", 3, "--epochs", 1, "--output", own / "out")
    assert run("train", "--data", "digits", "--train-size", 50, *options) == 0
    assert load_file(own / "out" / "model.safetensors")["1.weight"].shape == (3, 64)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--structure", "krom"), ("'krom'", "'kron'")),
        (("--prior", "evidnce"), ("'evidnce'", "'evidence'")),
        (("--prior", "normalised"), ("no normalisation", "--prior evidence")),
        (("--evidence", "linaer"), ("'linaer'", "'linear'")),
        (("--evidence", "linear", "--prior", 3), ("--evidence linear", "--prior 3", "leave one out")),
        (("--structure", "matrix_free"), ("cannot be saved", "low_rank")),
        (("--subset", 0.1, "--structure", "kron"), ("'kron'", "'full'")),
        (("--prior", "-2"), ("positive", "-2")),
        (("--subset", "nowhere"), ("'nowhere'",)),
        (("--data", "diabetes"), ("'diabetes'", "(1, 8, 8)", "(10,)")),
        (("--validation-size", 200), ("--validation-size 200", "it had a tenth", "train again with it")),
        (("--train-size", 301), ("--train-size 301", "the training had (300)", "has not seen", "leave it out")),
    ],
)
def test_fit_refuses_what_does_not_fit(
    run: Any, classifier: Path, tmp_path: Path, words: tuple[Any, ...], parts: tuple[str, ...], capsys: Any
) -> None:
    assert run("fit", "--checkpoint", classifier / "model.safetensors", "--output", tmp_path, *words) == 2
    err = capsys.readouterr().err
    assert all(part in err for part in parts), err


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("fit", "--checkpoint", "."), ("no file 'model.safetensors'", "--checkpoint")),
        (("fit", "--checkpoint", "none.safetensors"), ("no file 'none.safetensors'", "--checkpoint")),
        (
            ("predict", "--posterior", "{}", "--inputs", "none.npz"),
            ("no file 'none.npz'", "--inputs", "arrays (.npz"),
        ),
        (("evaluate", "--posterior", "{}", "--data", "none.npz"), ("no file 'none.npz'", "--data", "X and y")),
        (
            ("evaluate", "--posterior", "{}", "--ood", "none.npz"),
            ("no file 'none.npz'", "--ood", "arrays (.npz"),
        ),
    ],
)
def test_files_that_are_missing(
    run: Any,
    classifier: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    parts: tuple[str, ...],
    capsys: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*(word.format(classifier) for word in words)) == 2
    err = capsys.readouterr().err
    assert all(part in err for part in parts), err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"PK\x03\x04 a pickle", ("not a safetensors file", "save_file")),
        ("truncated", ("truncated or not a safetensors file",)),
        ("no card", ("does not name its network", "--model")),
        ("other weights", ("another network", "'0.weight'")),
        ("other format", ("format 99",)),
    ],
)
def test_a_checkpoint_that_is_none_is_refused(
    run: Any, classifier: Path, tmp_path: Path, content: Any, parts: tuple[str, ...], capsys: Any
) -> None:
    path, source = tmp_path / "model.safetensors", classifier / "model.safetensors"
    tensors = load_file(source)
    header = {"osculate_model": json.dumps({"format": 99 if content == "other format" else 1})}
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "truncated":
        path.write_bytes(source.read_bytes()[:500])
    elif content == "no card":
        save_file(tensors, path)
    elif content == "other format":
        save_file(tensors, path, metadata=header)
    else:
        save_file({**tensors, "0.weight": torch.zeros(2, 1, 3, 3)}, path)
    words = ("--model", "cnn", "--data", "digits") if content == "other weights" else ()
    assert run("fit", "--checkpoint", path, *words) == 2
    err = capsys.readouterr().err
    assert all(part in err for part in parts), err


# ---- predict ------------------------------------------------------------------------------------------------------


def test_predictions_of_classes_are_those_of_the_posterior(run: Any, classifier: Path) -> None:
    assert run("predict", "--posterior", classifier / "posterior.safetensors") == 0
    _, card = read_model(classifier / "model.safetensors")
    assert card is not None
    q = load_posterior(classifier / "posterior.safetensors", card.network())
    x = load("digits", train_size=300).test[0]
    with np.load(classifier / "predictions.npz") as found:
        probs = predict(q, x).probs.numpy()
        np.testing.assert_allclose(found["probabilities"], probs, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(found["prediction"], found["probabilities"].argmax(1))
        variance = functional_variance(q, x, diagonal=True).numpy()
        np.testing.assert_allclose(found["functional_variance"], variance, rtol=1e-4, atol=1e-6)
        entropy = -(probs * np.log(probs)).sum(1)
        np.testing.assert_allclose(found["entropy"], entropy, rtol=1e-3, atol=1e-4)
        with (classifier / "predictions.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == len(x)
        np.testing.assert_allclose(
            [float(r["probabilities[7]"]) for r in rows], found["probabilities"][:, 7], rtol=1e-5
        )


def test_logits_of_a_refined_posterior_are_its_mean_function(run: Any, classifier: Path, tmp_path: Path) -> None:
    _, card = read_model(classifier / "model.safetensors")
    assert card is not None
    q = load_posterior(classifier / "posterior.safetensors", card.network())
    q = q.replace(offset=0.01 * torch.ones_like(q.mean))
    save_posterior(q, tmp_path / "posterior.safetensors")
    shutil.copy(classifier / "model.safetensors", tmp_path)
    assert run("predict", "--posterior", tmp_path / "posterior.safetensors") == 0
    at = Linearisation(q.network, load("digits", train_size=300).test[0])
    expected = (at.f + at.jvp(q.offset.unsqueeze(0))[0]).detach().numpy()
    with np.load(tmp_path / "predictions.npz") as found:
        np.testing.assert_allclose(found["mean"], expected, rtol=1e-4, atol=1e-4)


def test_predictions_of_numbers_are_in_original_units(run: Any, regressor: Path, arrays: Path, tmp_path: Path) -> None:
    with np.load(arrays) as own:
        np.savez(tmp_path / "new.npz", X=own["X"][:10])
        targets = own["y"][:10]
    output = tmp_path / "out.npz"
    words = ("--inputs", tmp_path / "new.npz", "--output", output)
    assert run("predict", "--posterior", regressor / "posterior.safetensors", *words) == 0
    assert not output.with_suffix(".csv").exists()
    with np.load(output) as found:
        assert found["mean"].shape == found["sd"].shape == (10, 1)
        assert (found["sd"] > found["sd_function"]).all()
        assert np.abs(found["mean"] - targets).mean() < 0.5 * np.std(targets)
        assert (np.abs(found["mean"] - targets) < 4 * found["sd"]).all()


def test_sampled_predictions_follow_the_seed(run: Any, classifier: Path, tmp_path: Path) -> None:
    def probabilities(name: str, seed: int) -> np.ndarray:
        words = ("--via", "sampled", "--samples", 5, "--seed", seed, "--output", tmp_path / name)
        assert run("predict", "--posterior", classifier / "posterior.safetensors", *words) == 0
        with np.load(tmp_path / name) as found:
            return found["probabilities"]

    first = probabilities("a.npz", 1)
    np.testing.assert_array_equal(first, probabilities("b.npz", 1))
    assert not np.array_equal(first, probabilities("c.npz", 2))


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--output", "p.txt"), (".npz", ".csv", "'.txt'")),
        (("--link", "probitt"), ("'probitt'", "'probit'")),
        (("--via", "sample"), ("'sample'", "'sampled'")),
    ],
)
def test_predict_refuses_what_it_does_not_know(
    run: Any, classifier: Path, words: tuple[str, ...], parts: tuple[str, ...], capsys: Any
) -> None:
    assert run("predict", "--posterior", classifier / "posterior.safetensors", *words) == 2
    err = capsys.readouterr().err
    assert all(part in err for part in parts), err


def test_inputs_of_another_shape_are_refused(run: Any, classifier: Path, tmp_path: Path, capsys: Any) -> None:
    np.savez(tmp_path / "x.npz", X=np.zeros((3, 1, 9, 9)))
    assert run("predict", "--posterior", classifier / "posterior.safetensors", "--inputs", tmp_path / "x.npz") == 2
    assert "(1, 9, 9) each, but the network takes (1, 8, 8)" in capsys.readouterr().err


@pytest.mark.release
def test_a_posterior_of_an_earlier_training_is_refused(run: Any, classifier: Path, tmp_path: Path, capsys: Any) -> None:
    shutil.copytree(classifier, tmp_path / "run")
    again = ("--config", classifier / "config.yaml", "--seed", 1, "--epochs", 1, "--output", tmp_path / "run")
    assert run("train", *again) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert run("train", *again, "--overwrite") == 0
    assert not (tmp_path / "run" / "posterior.safetensors").exists(), "it was of the run that was replaced"
    shutil.copy(classifier / "posterior.safetensors", tmp_path / "run")
    assert run("evaluate", "--posterior", tmp_path / "run" / "posterior.safetensors") == 2
    assert "trained again after" in capsys.readouterr().err
    assert run("fit", "--checkpoint", tmp_path / "run") == 0  # as the message says
    assert run("evaluate", "--posterior", tmp_path / "run" / "posterior.safetensors") == 0


# ---- evaluate -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_evaluate_puts_map_beside_laplace(run: Any, classifier: Path, capsys: Any) -> None:
    assert run("evaluate", "--posterior", classifier / "posterior.safetensors", "--ood", "all") == 0
    out = capsys.readouterr().out
    assert "MAP" in out
    assert "Laplace" in out
    found = json.loads((classifier / "evaluation.json").read_text())
    for row in (found["MAP"], found["Laplace"]):
        assert {"accuracy", "nll", "ece", "brier", "auroc/rotated digits/entropy"} <= set(row)
    assert found["MAP"]["nll"] == pytest.approx(scores(classifier, "train", "test", "nll"), rel=1e-4)
    assert "auroc/shuffled pixels/functional_variance" in found["Laplace"]


def test_evaluate_compares_the_posterior_with_its_network(
    run: Any, regressor: Path, tmp_path: Path, capsys: Any
) -> None:
    output = tmp_path / "scores.json"
    assert run("evaluate", "--posterior", regressor, "--output", output) == 0
    out = capsys.readouterr().out
    assert "difference" in out
    assert "nats per prediction" in out
    found = json.loads(output.read_text())
    for name in ("rmse", "log_likelihood", "coverage_95"):
        change = found["Laplace"][name] - found["MAP"][name]
        assert found["difference"][name] == pytest.approx(change, abs=1e-6), "in the units of the targets"
        assert found["difference"][f"{name}_error"] >= 0
    assert found["finding"] in " ".join(out.split())


def test_a_posterior_that_is_worse_than_its_network_is_announced_once(
    run: Any, classifier: Path, tmp_path: Path, capsys: Any
) -> None:
    fit = ("fit", "--checkpoint", classifier, "--prior", 1e-3, "--structure", "diag", "--output", tmp_path)
    assert run(*fit, "--tune", "false", "--refine", "false") == 0
    streams = capsys.readouterr()
    assert "predicts worse" not in streams.out
    assert streams.err.count("predicts worse than its network alone") == 1
    assert all(word in streams.err for word in ("--refine or", "--tune", "model.safetensors")), streams.err


def test_evaluate_names_the_known_partners(run: Any, classifier: Path, capsys: Any) -> None:
    assert run("evaluate", "--posterior", classifier / "posterior.safetensors", "--ood", "rotated") == 2
    err = capsys.readouterr().err
    assert "'rotated'" in err
    assert "'shuffled pixels'" in err


def test_evaluate_names_the_data_that_have_partners(run: Any, regressor: Path, capsys: Any) -> None:
    assert run("evaluate", "--posterior", regressor / "posterior.safetensors", "--ood", "rotated") == 2
    err = capsys.readouterr().err
    assert all(part in err for part in ("'rotated'", "'mine'", "digits", "fashion_mnist")), err


@pytest.mark.parametrize(
    ("folder", "y", "parts"),
    [
        ("regressor", np.array(["a", "b", "c"] * 3), ("words such as 'a'", "real numbers")),
        ("classifier", np.linspace(0, 1, 9), ("has the class '0.125'", "its classes are '0', '1'")),
    ],
)
def test_targets_of_the_other_kind_are_refused(
    run: Any, request: Any, tmp_path: Path, folder: str, y: np.ndarray, parts: tuple[str, ...], capsys: Any
) -> None:
    posterior = request.getfixturevalue(folder) / "posterior.safetensors"
    np.savez(tmp_path / "other.npz", X=np.zeros((9, *((3,) if folder == "regressor" else (1, 8, 8)))), y=y)
    assert run("evaluate", "--posterior", posterior, "--data", tmp_path / "other.npz") == 2
    err = capsys.readouterr().err
    assert all(part in err for part in ("other.npz", *parts)), err


def test_a_posterior_without_its_network_says_which_file_is_missing(
    run: Any, regressor: Path, tmp_path: Path, capsys: Any
) -> None:
    shutil.copy(regressor / "posterior.safetensors", tmp_path)
    assert run("predict", "--posterior", tmp_path / "posterior.safetensors") == 2
    err = capsys.readouterr().err
    assert f"{tmp_path / 'model.safetensors'}" in err
    assert "same folder" in err


def test_evaluate_writes_where_it_is_told(run: Any, regressor: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "scores.json"
    assert run("evaluate", "--posterior", regressor / "posterior.safetensors", "--output", output) == 0
    found = json.loads(output.read_text())
    assert found["Laplace"]["rmse"] != pytest.approx(found["MAP"]["rmse"], rel=1e-4), "the mean of the linear model"
    assert found["MAP"]["rmse"] == pytest.approx(scores(regressor, "train", "test", "rmse"), rel=1e-4)


@pytest.mark.slow
def test_every_row_of_another_file_is_evaluated_in_the_units_of_the_training(
    run: Any, tmp_path: Path, capsys: Any
) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(5.0, 3.0, (80, 2)).astype("float32")
    y = (10 * x[:, 0] + generator.normal(size=80)).astype("float32")
    np.savez(tmp_path / "train.npz", X=x, y=y)
    np.savez(tmp_path / "other.npz", X=x[:30] + 1, y=y[:30] + 10)
    assert run("train", "--data", tmp_path / "train.npz", "--epochs", 30, "--lr", 0.01, "--output", tmp_path / "m") == 0
    assert run("fit", "--checkpoint", tmp_path / "m" / "model.safetensors", "--output", tmp_path / "m") == 0
    words = ("--posterior", tmp_path / "m" / "posterior.safetensors", "--data", tmp_path / "other.npz")
    assert run("evaluate", *words, "--output", tmp_path / "scores.json") == 0
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert scores["test_data"] == 30
    assert scores["Laplace"]["rmse"] < 10  # in the file's units; other scalings would shift it by much more


# ---- files that nobody should trust, and folders that are in use --------------------------------------------------


def test_a_file_names_no_code(run: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    (tmp_path / "run.yaml").write_text("data: digits\nmodel: evil:make\nepochs: 1\n")
    words = ("train", "--config", tmp_path / "run.yaml", "--output", tmp_path / "run")
    assert run(*words) == 2
    assert "must not run code by itself: type --model evil:make" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &a [1, 1]\nb: &b [*a, *a]\nepochs: [*b, *b]\n", "has aliases"),
        ("#" + "x" * 2**21, "take less than 64 kB"),
        ("epochs: " + "[" * 10_000, "more than 20 levels"),
        ("epochs: [1", "is not a YAML file"),
        ("- 1\n- 2\n", "each with a name and a value"),
    ],
)
def test_a_configuration_that_would_never_end(run: Any, tmp_path: Path, capsys: Any, text: str, words: str) -> None:
    (tmp_path / "run.yaml").write_text(text)
    assert run("train", "--config", tmp_path / "run.yaml", "--output", tmp_path / "run") == 2
    assert words in capsys.readouterr().err


def test_a_run_is_neither_replaced_nor_resumed_by_mistake(
    run: Any, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("train", "--data", "digits", "--train-size", 60, "--epochs", 1)
    assert run(*words, "--resume") == 2
    assert "there is no run to resume" in capsys.readouterr().err
    assert run(*words) == 0
    assert run(*words) == 0
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"train", "train-2"}
    assert run(*words, "--output", "runs/train") == 2
    assert "--resume to go on with it, --overwrite to replace it" in capsys.readouterr().err
    assert run(*words, "--output", "runs/train", "--resume") == 0
    assert run(*words, "--output", "runs/train", "--resume", "--overwrite") == 2


def test_a_configuration_that_was_changed_is_told(classifier: Path, tmp_path: Path) -> None:
    text = (classifier / "config.yaml").read_text()
    path = tmp_path / "config.yaml"
    path.write_text(text.replace("epochs: 8", "epochs: 9"))
    with pytest.warns(UserWarning, match="not as osculate wrote it"):
        assert read_config(path)["epochs"] == 9
    path.write_text(text.partition("\n")[2])
    assert read_config(path)["epochs"] == 8


def test_inspect_tells_what_files_are(run: Any, classifier: Path, tmp_path: Path, capsys: Any) -> None:
    assert run("inspect", classifier) == 0
    out = capsys.readouterr().out
    assert all(words in out for words in ("posterior.safetensors", "structure      kron", "checksum       right"))
    assert all(words in out for words in ("network with its card", "checkpoint of a training", "epochs         8"))
    damaged = tmp_path / "model.safetensors"
    content = bytearray((classifier / "model.safetensors").read_bytes())
    content[-3] ^= 4
    damaged.write_bytes(content)
    assert run("inspect", damaged) == 2
    assert "not that of its checksum" in capsys.readouterr().err
    assert run("inspect", tmp_path / "nowhere") == 2
    (tmp_path / "notes.txt").write_text("?")
    assert run("inspect", tmp_path / "notes.txt") == 2
    assert "of no kind that osculate reads" in capsys.readouterr().err


def test_inspect_goes_by_content_and_past_damage(run: Any, classifier: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "a.bin").write_bytes((classifier / "posterior.safetensors").read_bytes())
    (tmp_path / "b.ckpt").write_bytes((classifier / "last.ckpt").read_bytes()[:-50])
    np.savez(tmp_path / "c.npz", y=np.zeros((2, 3)))
    (tmp_path / "notes.txt").write_text("?")
    assert run("inspect", tmp_path) == 2
    out, err = capsys.readouterr()
    assert all(words in out for words in ("structure      kron", "float64 (2, 3), 48 B", "notes.txt", "damaged"))
    assert "b.ckpt" in err
    assert "a.bin" not in err
    assert "c.npz" not in err


def test_inspect_prints_the_schema_of_data(run: Any, tmp_path: Path, capsys: Any) -> None:
    rows = "".join(f"{n % 7}.5,{'red' if n % 3 else 'blue'}\n" for n in range(30))
    (tmp_path / "t.csv").write_text(f"size,colour\n{rows}")
    assert run("inspect", tmp_path / "t.csv") == 0
    out = capsys.readouterr().out
    assert all(words in out for words in ("table", "30", "size", "number", "'blue', 'red'"))
    for number in range(20):
        folder = tmp_path / "img" / ("cat" if number % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), number).save(folder / f"{number}.png")
    assert run("inspect", tmp_path / "img") == 0
    out = capsys.readouterr().out
    assert "'cat', 'dog'" in out
    assert "3.png" not in out


def test_inspect_compares_checksums_of_arrays(run: Any, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "c.npz"
    np.savez(path, y=np.zeros(30))
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    assert run("inspect", path) == 2
    assert "y.npy" in capsys.readouterr().err


def test_permissions_follow_the_mask_of_the_user(classifier: Path) -> None:
    mask = os.umask(0o022)
    os.umask(mask)
    for name in ("model.safetensors", "posterior.safetensors", "last.ckpt", "config.yaml"):
        assert (classifier / name).stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.slow
def test_an_interrupted_fit_goes_on(
    run: Any, classifier: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("fit", "--checkpoint", classifier, "--output", tmp_path, "--tune", "false")
    monkeypatch.setattr("osculate.cli.fit.EVERY", 1)
    added = Kron.add
    calls: list[int] = []

    def breaks(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            return added(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Kron, "add", breaks)
    monkeypatch.setattr("osculate.batches.BATCH_SIZE", 50)
    monkeypatch.setattr("osculate.batches.as_batches.__defaults__", (50, False))
    assert run(*words) == 130
    assert (tmp_path / "fit.partial.safetensors").is_file()
    monkeypatch.setattr(Kron, "add", added)
    assert run(*words, "--resume") == 0
    assert not (tmp_path / "fit.partial.safetensors").exists()
    assert run(*words, "--resume") == 0
    assert "no interrupted fit" in capsys.readouterr().out
