"""Autoencoders on the command line: train --method, evaluate --task, demo --lae, on few small digits."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from osculate.autoencoders import VAE, Autoencoder
from osculate.cli import demo_autoencoders
from osculate.cli.demo_report import reconstruction_error_alone, score_card, verdicts
from osculate.cli.options import DataOptions
from osculate.cli.predict import PosteriorOptions
from osculate.cli.tables import Score
from osculate.data import load
from osculate.posteriors import Dropout, Gaussian, Point
from tests.cli.pages import check

SMALL = ("--data", "digits", "--train-size", 200, "--epochs", 5, "--lr", 0.01, "--batch-size", 32)
TINY = (*SMALL, "--model-options.hidden", "[16]")

OWN = """
from torch import nn
from osculate.autoencoders import Autoencoder

def own():
    decoder = nn.Sequential(nn.Linear(3, 64), nn.Unflatten(1, (1, 8, 8)))
    return Autoencoder(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), decoder)
"""


@pytest.fixture(scope="module")
def online(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of an online Laplacian autoencoder."""
    folder = tmp_path_factory.mktemp("online")
    assert run("train", "--method", "online_laplace", *TINY, "--output", folder) == 0
    return folder


def section(folder: Path, name: str) -> Any:
    return json.loads((folder / "metrics.json").read_text())[name]


# ---- train --------------------------------------------------------------------------------------------------------


def test_online_laplace_trains_an_autoencoder_of_images(online: Path) -> None:
    names = {path.name for path in online.iterdir()}
    assert {"model.safetensors", "posterior.safetensors", "latent_map.png", "reconstructions.png"} <= names
    q, card = PosteriorOptions(online).open("cpu")
    assert isinstance(q, Gaussian)
    assert isinstance(q.model, Autoencoder)
    assert card.reconstructs
    assert card.model == "mlp_autoencoder"
    assert float(q.temperature) == pytest.approx(section(online, "train")["temperature"])
    assert float(q.likelihood.scale) == pytest.approx(card.noise)
    x = load("digits", train_size=200).validation[0]
    with torch.no_grad():
        assert card.noise == pytest.approx((q.model(x) - x).square().mean().sqrt().item(), rel=1e-4)
    assert set(section(online, "train")["test"]) >= {"log_density", "pixel_rmse"}


def test_the_default_autoencoder_is_the_published_one() -> None:
    from osculate.cli.methods import MethodOptions
    from osculate.cli.train import TrainOptions, network_name, new_network

    how = MethodOptions("online_laplace")
    assert network_name("auto", how, (1, 28, 28), True) == "mlp_autoencoder"
    assert network_name("auto", how, (5,), True) == "mlp"
    assert network_name("auto", MethodOptions("vae"), (5,), True) == "mlp_autoencoder"
    assert network_name("auto", MethodOptions(), (5,), False) == "mlp_autoencoder"
    data = load("digits", train_size=10)
    model, _ = new_network(data, DataOptions("digits"), TrainOptions(), 0, how)
    assert [m.out_features for m in model.modules() if isinstance(m, torch.nn.Linear)] == [512, 256, 2, 256, 512, 64]


@pytest.mark.parametrize(
    ("words", "kind", "network"),
    [
        pytest.param(("--method", "vae"), Point, VAE, marks=pytest.mark.release),
        pytest.param(
            ("--method", "mc_dropout", "--model", "mlp_autoencoder"), Dropout, Autoencoder, marks=pytest.mark.release
        ),
        (("--model", "mlp_autoencoder", "--latent", 3), Point, Autoencoder),
        pytest.param(
            ("--method", "online_laplace", "--temperature", 0.01, "--structure", "diag"),
            Gaussian,
            Autoencoder,
            marks=pytest.mark.release,
        ),
    ],
)
@pytest.mark.slow
def test_every_method_leaves_what_evaluate_opens(
    run: Any, tmp_path: Path, words: tuple[Any, ...], kind: type, network: type
) -> None:
    assert run("train", *words, *TINY, "--epochs", 2, "--output", tmp_path) == 0
    q, card = PosteriorOptions(tmp_path).open("cpu")
    assert type(q) is kind
    assert type(q.model) is network
    assert card.options.get("latent") == (3 if "--latent" in words else None)
    assert (tmp_path / "latent_map.png").exists() == ("--latent" not in words)
    if kind is Gaussian:
        assert float(q.temperature) == 0.01
    again = ("train", "--config", tmp_path / "config.yaml", "--output", tmp_path / "again")
    assert run(*again) == 0
    first, second = (load_file(f / "model.safetensors") for f in (tmp_path, tmp_path / "again"))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.release
def test_autoencoder_is_short_for_the_convolutional_one(run: Any, tmp_path: Path) -> None:
    options = ("--model-options.width", 2, "--model-options.depth", 1, "--epochs", 1, "--output", tmp_path)
    assert run("train", "--model", "autoencoder", *SMALL, *options) == 0
    q, _ = PosteriorOptions(tmp_path).open("cpu")
    assert isinstance(q.model, Autoencoder)
    assert any(isinstance(module, torch.nn.Conv2d) for module in q.model.modules())
    assert run("fit", "--checkpoint", tmp_path / "model.safetensors", "--tune") == 0
    fitted, _ = PosteriorOptions(tmp_path / "posterior.safetensors").open("cpu")
    assert fitted.structure.structure.name == "approx_diag"
    dropped = tmp_path / "dropped"
    assert run("train", "--model", "autoencoder", "--method", "mc_dropout", *SMALL, *options, "--output", dropped) == 0
    assert type(PosteriorOptions(dropped).open("cpu")[0]) is Dropout
    assert run("predict", "--posterior", tmp_path, "--samples", 3) == 0
    with np.load(tmp_path / "predictions.npz") as found:
        assert found["mean"].shape == (600, 1, 8, 8)


@pytest.mark.release
def test_online_laplace_of_a_classifier_and_of_a_regression(run: Any, arrays: Path, tmp_path: Path) -> None:
    words = ("--method", "online_laplace", "--epochs", 3)
    assert run("train", *words, *SMALL, "--model", "cnn", "--epochs", 2, "--output", tmp_path / "c") == 0
    assert run("train", *words, "--data", arrays, "--output", tmp_path / "r") == 0
    for name in ("c", "r"):
        assert run("evaluate", "--posterior", tmp_path / name / "posterior.safetensors") == 0
    assert "ece" in section(tmp_path / "c", "train")["test"]
    assert "rmse" in section(tmp_path / "r", "train")["test"]


@pytest.mark.release
def test_an_interrupted_online_training_resumes(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from osculate.methods import OnlineLaplace

    options = ("--method", "online_laplace", *TINY, "--epochs", 3, "--output", tmp_path / "run")
    assert run("train", *options, "--output", tmp_path / "whole") == 0
    original, calls = OnlineLaplace.loss, []

    def interrupted(self: OnlineLaplace, *args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 10:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    monkeypatch.setattr(OnlineLaplace, "loss", interrupted)
    assert run("train", *options) == 130
    monkeypatch.setattr(OnlineLaplace, "loss", original)
    assert run("train", *options, "--resume") == 0
    whole, resumed = (load_file(tmp_path / name / "posterior.safetensors") for name in ("whole", "run"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.release
def test_an_autoencoder_of_ones_own(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_coders.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = ("--model", "my_coders:own")
    assert run("train", *own, *SMALL, "--method", "online_laplace", "--output", tmp_path / "out") == 0
    assert not (tmp_path / "out" / "latent_map.png").exists()
    words = ("evaluate", "--posterior", tmp_path / "out", "--task", "ood", "--test-size", 20, "--samples", 3)
    assert run(*words) == 2, "a file must not make code run that the user has not named"
    assert run(*words, *own) == 0


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--method", "online"), ("'online'", "'online_laplace'")),
        (("--method", "vae", "--model", "cnn"), ("vae", "cnn", "mlp_autoencoder")),
        (("--model", "cnn", "--latent", 3), ("--latent", "cnn", "leave --latent out")),
        (("--temperature", 0.1), ("--temperature 0.1", "online_laplace", "map")),
        (("--method", "online_laplace", "--temperature", -1), ("-1", "positive")),
        (("--method", "online_laplace", "--structure", "dual"), ("'dual'", "'approx_diag'")),
        (("--method", "mc_dropout", "--model", "normalised_cnn"), ("dropout", "--model mlp")),
        (("--model", "mlp_autoencoder", "--latent", 0), ("latent", "0")),
    ],
)
def test_train_refuses_what_does_not_fit(
    run: Any, tmp_path: Path, words: tuple[Any, ...], parts: tuple[str, ...], capsys: Any
) -> None:
    assert run("train", *SMALL, *words, "--output", tmp_path) == 2
    err = capsys.readouterr().err
    assert all(part in err for part in parts), err


@pytest.mark.release
def test_a_fit_keeps_the_prior_of_an_autoencoder_and_takes_the_decoder_of_a_vae(
    run: Any, tmp_path: Path, capsys: Any
) -> None:
    plain, vae = tmp_path / "plain", tmp_path / "vae"
    assert run("train", "--model", "mlp_autoencoder", *TINY, "--output", plain) == 0
    assert run("fit", "--checkpoint", plain / "model.safetensors", "--tune") == 0
    assert set(section(plain, "fit")["prior_precision"].values()) == {1.0}
    assert section(plain, "fit")["structure"] == "approx_diag"
    assert run("train", "--method", "vae", *TINY, "--output", vae) == 0
    assert run("fit", "--checkpoint", vae / "model.safetensors") == 2
    assert "--subset decoder" in capsys.readouterr().err
    assert run("fit", "--checkpoint", vae / "model.safetensors", "--subset", "decoder") == 0


@pytest.mark.slow
def test_images_without_labels_are_enough(run: Any, tmp_path: Path, capsys: Any) -> None:
    x = load("digits").train[0].numpy()
    np.savez(tmp_path / "mine.npz", X=x[:150])
    np.savez(tmp_path / "data.npz", X=x[150:200, :, ::-1])  # a name that the section has too
    (tmp_path / "again").mkdir()
    np.savez(tmp_path / "again" / "data.npz", X=x)
    np.savez(tmp_path / "small.npz", X=x[:5, :, 1:])
    out = tmp_path / "run"
    few = ("--epochs", 2, "--model-options.hidden", "[16]")
    assert run("train", "--data", tmp_path / "mine.npz", *few, "--output", out) == 0
    assert PosteriorOptions(out).open("cpu")[1].model == "mlp_autoencoder"
    assert {"reconstructions.png", "latent_map.png"} <= {path.name for path in out.iterdir()}
    assert run("fit", "--checkpoint", out / "model.safetensors") == 0
    ood, other = ("evaluate", "--posterior", out, "--task", "ood", "--samples", 5), ("--ood", tmp_path / "data.npz")
    assert run(*ood, *other) == 0
    assert set(section(out, "ood")["data.npz"]) >= {"auroc_nll", "auroc_mean_pixel", "auroc_latent_deviation"}
    assert run("evaluate", "--posterior", out, "--task", "imputation", "--samples", 3) == 0
    assert set(section(out, "imputation")["filled in"]) == {"mse", "mse_draw"}
    assert (out / "imputations.png").exists()
    np.savez(tmp_path / "large.npz", X=255 * x[:20])
    capsys.readouterr()
    assert run(*ood, "--ood", tmp_path / "large.npz") == 0
    assert "reach 255" in capsys.readouterr().err
    twice = f"{tmp_path / 'data.npz'},{tmp_path / 'again' / 'data.npz'}"
    for words, said in (
        (ood, "--ood file.npz"),
        ((*ood, "--ood", tmp_path / "small.npz"), "(1, 7, 8)"),
        ((*ood, "--ood", twice), "the same name"),
        (("evaluate", "--posterior", out, "--task", "imputation", "--classifier", out), "has no classes"),
        ((*ood, *other, "--samples", 0), "--samples must be at least 1, got 0"),
        ((*ood, *other, "--via", "linearised"), "--via linearised"),
        ((*ood, *other, "--data", tmp_path / "small.npz"), "(1, 7, 8)"),
        (("predict", "--posterior", out, "--inputs", tmp_path / "small.npz"), "(1, 7, 8)"),
        (("train", "--data", tmp_path / "mine.npz", "--model", "lenet"), "no y"),
    ):
        assert run(*words) == 2
        assert said in capsys.readouterr().err


@pytest.mark.slow
def test_vectors_of_a_file_are_standardised_as_those_of_the_training(run: Any, tmp_path: Path, capsys: Any) -> None:
    rng = np.random.default_rng(0)
    x = 100 + 10 * rng.normal(size=(300, 2)) @ rng.normal(size=(2, 5))
    np.savez(tmp_path / "mine.npz", X=x[:200])
    np.savez(tmp_path / "new.npz", X=x[200:])
    out = tmp_path / "run"
    few = ("--epochs", 30, "--lr", 0.01, "--model-options.hidden", "[16]")
    assert run("train", "--data", tmp_path / "mine.npz", *few, "--output", out) == 0
    assert "standardised units" in " ".join(capsys.readouterr().out.split())
    assert run("evaluate", "--posterior", out, "--task", "ood", "--ood", tmp_path / "new.npz") == 0
    assert abs(section(out, "ood")["new.npz"]["auroc_nll"] - 0.5) < 0.2, "they are of one kind"
    assert run("evaluate", "--posterior", out, "--data", tmp_path / "new.npz") == 0
    rmse = json.loads((out / "evaluation.json").read_text())["MAP"]["rmse"]
    assert 0 < rmse < 0.5 * x.std(), "in the units of the file"


# ---- evaluate -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_tasks_of_autoencoders_leave_numbers_and_figures(run: Any, online: Path, classifier: Path, capsys: Any) -> None:
    words = ("evaluate", "--posterior", online, "--test-size", 120, "--samples", 4)
    assert run(*words, "--task", "ood") == 0
    printed = capsys.readouterr().out
    assert "rotated digits" in printed
    by_network, alone = printed.split("without a network")
    assert "σ of code" in by_network
    assert "mean pixel" not in by_network
    assert "nearest input" in alone
    assert "σ of code" not in alone.split("Saved")[0]
    assert "nearest input" in (online / "ood.html").read_text()
    assert run(*words, "--task", "imputation", "--classifier", classifier) == 0
    assert run(*words, "--task", "semi_supervised", "--labels", "1,3") == 0
    assert "3 labels" in capsys.readouterr().out
    ood = section(online, "ood")["shuffled pixels"]
    assert ood["auroc_nll"] > 0.5
    assert ood["auroc_mean_pixel"] == pytest.approx(0.5, abs=1e-6)
    assert {"auroc_latent_deviation", "auroc_output_deviation", "auroc_nll_error", "auroc_typicality"} <= set(ood)
    filled = section(online, "imputation")
    assert filled["filled in"]["accuracy"] < filled["the images themselves"]["accuracy"]
    assert {"mse", "ece", "accuracy_error"} <= set(filled["filled in"])
    assert set(section(online, "semi_supervised")["codes"]) >= {"accuracy/1", "accuracy/3", "accuracy/3_error"}
    figures = {"ood_roc.png", "ood_histograms.png", "imputations.png", "accuracy_against_labels.png"}
    assert figures <= {path.name for path in online.iterdir()}
    assert section(online, "train")["test"], "the other sections are kept"


def test_calibration_of_an_autoencoder_stays_the_default(run: Any, online: Path, tmp_path: Path) -> None:
    output = tmp_path / "scores.json"
    assert run("evaluate", "--posterior", online / "posterior.safetensors", "--samples", 5, "--output", output) == 0
    found = json.loads(output.read_text())
    assert found["MAP"]["rmse"] == pytest.approx(section(online, "train")["test"]["pixel_rmse"], rel=0.1)


@pytest.mark.parametrize(
    ("folder", "words", "parts"),
    [
        ("classifier", ("--task", "imputation"), ("imputation", "cnn", "--method online_laplace")),
        ("online", ("--task", "imputing"), ("'imputing'", "'imputation'")),
        ("online", ("--task", "semi_supervised", "--labels", "a"), ("'a'", "1,5,20")),
        ("online", ("--task", "ood", "--ood", "rotated"), ("'rotated'", "'rotated digits'")),
        ("online", ("--ood", "shuffled pixels"), ("--ood shuffled pixels", "--task ood")),
        ("online", ("--task", "ood", "--test-size", 0), ("--test-size must be at least 1, got 0",)),
        ("online", ("--task", "imputation", "--classifier", "nowhere"), ("nowhere",)),
    ],
)
def test_evaluate_refuses_what_does_not_fit(
    run: Any, request: Any, folder: str, words: tuple[Any, ...], parts: tuple[str, ...], capsys: Any
) -> None:
    assert run("evaluate", "--posterior", request.getfixturevalue(folder), *words) == 2
    err = capsys.readouterr().err
    assert all(part in err for part in parts), err


def test_an_autoencoder_is_no_classifier_for_imputation(run: Any, online: Path, capsys: Any) -> None:
    assert run("evaluate", "--posterior", online, "--task", "imputation", "--classifier", online) == 2
    assert "holds no classifier" in capsys.readouterr().err


def test_tasks_that_need_labels_say_so(run: Any, arrays: Path, tmp_path: Path, capsys: Any) -> None:
    words = ("--model", "mlp_autoencoder", "--model-options.hidden", "[4]", "--epochs", 1, "--output", tmp_path)
    assert run("train", "--data", arrays, *words) == 0
    for task, said in {"imputation": "upper half of images", "semi_supervised": "has no classes"}.items():
        assert run("evaluate", "--posterior", tmp_path, "--task", task) == 2
        assert said in capsys.readouterr().err


# ---- demo --lae ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny version of the demo."""
    folder = tmp_path_factory.mktemp("lae") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_autoencoders, "SETTINGS", demo_autoencoders.SETTINGS.changed(epochs=2))
        patch.setattr(demo_autoencoders, "HIDDEN", [8])
        patch.setattr(demo_autoencoders, "LABELS", (1, 2))
        patch.setattr(demo_autoencoders, "SAMPLES", 3)
        assert run("demo", "--lae", "--train-size", 100, "--output", folder) == 0
    return folder


def test_the_demo_leaves_a_folder_that_the_commands_use(run: Any, demo: Path) -> None:
    figures = ("latent_map", "reconstructions", "roc", "imputations", "generated", "accuracy_against_labels")
    files = {"config.yaml", "metrics.json", "model.safetensors", "posterior.safetensors", "report.html"}
    assert {path.name for path in demo.iterdir()} == files | {f"{name}.png" for name in figures}
    assert yaml.safe_load((demo / "config.yaml").read_text())["lae"] is True
    tables = json.loads((demo / "metrics.json").read_text())
    tables = {name: rows for name, rows in tables.items() if name not in ("seconds", "versions")}
    assert len(tables) == 5
    for rows in tables.values():
        assert set(rows) == {"AE", "VAE", "MC dropout", "online Laplace"}
    assert run("evaluate", "--posterior", demo, "--task", "ood", "--test-size", 20, "--samples", 3) == 0


def test_the_report_of_the_demo_stands_alone(demo: Path) -> None:
    page = check(demo / "report.html", figures=6)
    for word in ("online Laplace", "AUROC", "osculate demo --train-size 100 --lae", "is clearly best"):
        assert word in page


def test_the_demo_of_autoencoders_refuses_other_data(run: Any, capsys: Any) -> None:
    assert run("demo", "--lae", "--data", "mnist") == 2
    assert "train --method online_laplace --data mnist" in capsys.readouterr().err


def test_sentences_follow_the_numbers() -> None:
    def rows(ours: float, theirs: float, error: float | None = 0.01) -> Any:
        return {"AE": {"auroc_nll": Score(theirs, error)}, "online Laplace": {"auroc_nll": Score(ours, error)}}

    assert "online Laplace is clearly best" in verdicts(rows(0.9, 0.8))[0]
    assert "AE is clearly best" in verdicts(rows(0.8, 0.9))[0]
    assert "not clearly better than AE" in verdicts(rows(0.81, 0.8))[0]
    assert "without a standard error" in verdicts(rows(0.9, 0.8, None))[0]
    assert "clearly best in 1, level with the best in 1, and clearly behind it in 1" in score_card(
        {"a": rows(0.9, 0.8), "b": rows(0.8, 0.9), "c": rows(0.81, 0.8)}
    )
    assert "Of 0 columns" in score_card({"a": rows(0.9, 0.8, None)})
    assert "AUROC of 0.700" in reconstruction_error_alone({"a": rows(0.9, 0.8), "b": rows(0.9, 0.7)})
