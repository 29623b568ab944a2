"""Variational autoencoders on the command line: --codes of train, --task bound of evaluate."""

import json
from pathlib import Path
from typing import Any

import pytest

from osculate.autoencoders import VAE, SigmoidCodes
from osculate.cli import autoencoder_tasks
from osculate.cli.codes import PIXELS, CodeOptions
from osculate.cli.predict import PosteriorOptions
from osculate.likelihoods import Bernoulli, HeteroscedasticGaussian

SMALL = ("--data", "digits", "--train-size", 100, "--epochs", 2, "--model-options.hidden", "[16]")


@pytest.fixture(scope="module")
def folder(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a variational autoencoder of grey pixels."""
    made = tmp_path_factory.mktemp("vae")
    assert run("train", "--method", "vae", *SMALL, "--codes.likelihood", "bernoulli", "--output", made) == 0
    return made


def test_a_vae_leaves_its_likelihood_and_pictures(folder: Path) -> None:
    q, card = PosteriorOptions(folder).open("cpu")
    assert isinstance(q.likelihood, Bernoulli)
    assert q.likelihood.grey
    assert card.noise is None
    assert {"manifold.png", "new_images.png", "reconstructions.png"} <= {path.name for path in folder.iterdir()}


@pytest.mark.release
def test_bounds_are_told_with_their_draws_and_errors(
    run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(autoencoder_tasks, "ANNEALED", 2)
    assert run("evaluate", "--posterior", folder, "--task", "bound", "--samples", 20, "--test-size", 10) == 0
    found = json.loads((folder / "metrics.json").read_text())["bound"]
    elbo, weighted = (found[f"{kind}, 20 draws"] for kind in ("elbo", "iwae"))
    assert weighted["draws"] == 20
    assert elbo["log_p"] < weighted["log_p"] < 0
    assert found["annealed, lower: 2 images, 16 chains"]["log_p_error"] > 0
    assert "of 2 numbers of the code are active" in " ".join(capsys.readouterr().out.split())
    assert (folder / "bounds.png").exists()


@pytest.mark.release
def test_codes_and_pixels_of_other_kinds_are_trained_and_opened(run: Any, tmp_path: Path) -> None:
    words = ("--codes.likelihood", "gaussian_per_pixel", "--codes.prior", "beta", "--codes.masked", 0.2)
    assert run("train", "--method", "vae", *SMALL, *words, "--codes.fading", "linear", "--output", tmp_path) == 0
    q, _ = PosteriorOptions(tmp_path).open("cpu")
    assert isinstance(q.likelihood, HeteroscedasticGaussian)
    assert isinstance(q.model, VAE)
    assert isinstance(q.model.posterior, SigmoidCodes)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--method", "vae", "--codes.likelihood", "bernouli"), ("bernouli", "did you mean 'bernoulli'")),
        (("--method", "vae", "--codes.fading", "linear"), ("--codes.fading", "--codes.masked")),
        (("--method", "vae", "--codes.masked", "1.7"), ("1.7",)),
        (("--method", "vae", "--codes.samples", "0"), ("--codes.samples", "0")),
        (("--method", "vae", "--codes.shape", "2"), ("shape", "likelihood", "fading")),
        (("--method", "vae", "--codes.likelihood", "bernoulli", "--noise", 0.1), ("--noise", "gaussian", "bernoulli")),
        (("--method", "map", "--model", "mlp_autoencoder", "--codes.prior", "beta"), ("--codes", "vae", "map")),
    ],
)
def test_codes_that_cannot_be_are_refused_in_a_sentence(
    run: Any, words: tuple[Any, ...], said: tuple[str, ...], capsys: pytest.CaptureFixture
) -> None:
    assert run("train", *SMALL, *words) == 2
    message = capsys.readouterr().err
    assert all(word in message for word in said), message


@pytest.mark.slow
def test_a_bound_needs_codes_with_a_prior(run: Any, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert run("train", "--model", "mlp_autoencoder", *SMALL, "--output", tmp_path) == 0
    assert run("evaluate", "--posterior", tmp_path, "--task", "bound") == 2
    assert "--method vae" in capsys.readouterr().err


@pytest.mark.parametrize("name", PIXELS)
def test_noise_is_asked_for_where_the_likelihood_has_it(name: str) -> None:
    options = CodeOptions(likelihood=name)
    assert options.has_noise == PIXELS[name](0.3).has_noise
    assert ("outputs" in options.network) == (name == "gaussian_per_pixel")
