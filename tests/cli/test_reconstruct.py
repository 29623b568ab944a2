"""``osculate reconstruct``: pictures, measured data, other operators, what it leaves, going on, and errors."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from PIL import Image

from osculate.cli.measurement import Measured, MeasurementOptions, OperatorOptions, measured
from osculate.cli.reconstruct_report import ceiling, white
from osculate.data import shepp_logan
from osculate.inverse import Blur, DeepImagePrior, RayTransform, Subsampling, classical, reconstruct
from osculate.networks import SkipUNet
from tests.cli.conftest import Run
from tests.cli.pages import check

TINY = ("--steps", 300, "--learning-rate", 1e-2, "--width", 4)


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A photograph in colour that is not square."""
    path = tmp_path_factory.mktemp("pictures") / "picture.png"
    grey = (255 * shepp_logan(20)[:14]).byte().numpy()
    Image.fromarray(np.stack([grey, grey, grey], -1)).save(path)
    return path


@pytest.mark.slow
def test_a_picture_is_measured_and_reconstructed(
    run: Run, picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "found"
    words = ("--operator", "radon", "--angles", 9, "--noise", 0.05, "--output", folder, *TINY, picture)
    assert run("reconstruct", *words) == 0
    out = capsys.readouterr().out
    assert "seconds: deep image prior" in out
    assert "posterior" in out
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "calibration.png",
        "config.yaml",
        "deep_image_prior.safetensors",
        "error_maps.png",
        "metrics.json",
        "reconstruction.npz",
        "reconstruction.png",
        "report.html",
        "samples.png",
        "stddev.png",
        "training.png",
    }
    arrays = np.load(folder / "reconstruction.npz", allow_pickle=False)
    assert arrays["mean"].shape == arrays["stddev"].shape == arrays["truth"].shape == (14, 20)
    assert arrays["samples"].shape == (20, 14, 20)
    assert arrays["data"].shape == (9, 25)
    assert (arrays["stddev"] > 0).all()
    record = json.loads((folder / "metrics.json").read_text())
    assert "given" in record["given"]["noise"]
    assert set(record["seconds"]) == {"deep image prior", "Jacobian and covariances", "evidence", "posterior"}
    error = np.abs(arrays["mean"] - arrays["truth"])
    assert record["scores"]["pixel_rmse"] == pytest.approx(float(np.sqrt((error**2).mean())), rel=1e-4)
    page = check(folder / "report.html", figures=4)
    for words in (
        "Where is the image uncertain?",
        "Are the error bars calibrated?",
        "9 × 25 measurements",
        "14 × 20",
        "picture.png",
    ):
        assert words in page

    # the settings repeat the run; the network is taken from it, and refused for other data
    assert run("reconstruct", "--config", folder / "config.yaml", "--resume", "--objective", "linear") == 0
    again = np.load(folder / "reconstruction.npz", allow_pickle=False)
    assert np.array_equal(again["mean"], arrays["mean"])
    assert not np.allclose(again["stddev"], arrays["stddev"])
    capsys.readouterr()
    assert run("reconstruct", "--config", folder / "config.yaml", "--resume", "--noise", 0.1) == 2
    assert "trained for other data" in capsys.readouterr().err
    assert run("reconstruct", "--config", folder / "config.yaml") == 2
    assert "--resume to go on with it, --overwrite to replace it" in capsys.readouterr().err


@pytest.mark.release
def test_measured_data_need_nothing_but_the_file(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = 30 * shepp_logan(16)
    operator = RayTransform((16, 16), [0.1, 0.7, 1.3, 1.9, 2.5])
    data = operator(truth) + 4 * torch.randn(operator.data_shape, generator=torch.Generator().manual_seed(0))
    np.savez(tmp_path / "scan.npz", sinogram=data.numpy(), angles=operator.angles.numpy())
    folder = tmp_path / "found"
    assert run("reconstruct", tmp_path / "scan.npz", "--output", folder, *TINY) == 0
    arrays = np.load(folder / "reconstruction.npz", allow_pickle=False)
    assert arrays["mean"].shape == (16, 16)
    assert 5 < arrays["mean"].max() < 60, "in units of the data"
    scores = json.loads((folder / "metrics.json").read_text())["scores"]
    assert set(scores) == {"sigma", "mean_stddev", "residual"}, "nothing that needs the truth"
    assert 0.5 < scores["sigma"] < 16, "the noise was estimated"
    assert not (folder / "calibration.png").exists()


def test_ways_to_say_what_was_measured(tmp_path: Path) -> None:
    def read(name: str, how: OperatorOptions | None = None, **options: object):
        return measured(MeasurementOptions(str(tmp_path / name), **options), how or OperatorOptions())

    np.save(tmp_path / "sinogram.npy", RayTransform((16, 16), 6)(shepp_logan(16)).numpy())
    plain = read("sinogram.npy")
    assert plain.operator.data_shape == (6, 23)
    assert plain.operator.image_shape == (16, 16)
    assert plain.noise is None
    assert 0.3 < plain.scale < 3
    assert read("sinogram.npy", sigma=0.5, scale=2.0).noise == 0.5
    mask = torch.rand(8, 9) < 0.5
    seen = torch.rand(int(mask.sum())).numpy()
    np.savez(tmp_path / "seen.npz", data=seen, mask=mask.numpy(), noise=0.1)
    inpainting = read("seen.npz", OperatorOptions("inpainting"), scale=1.0)
    assert isinstance(inpainting.operator, Subsampling)
    assert inpainting.noise == pytest.approx(0.1)
    np.savez(tmp_path / "blurred.npz", data=Blur((8, 9))(torch.rand(8, 9)).numpy(), truth=np.zeros((8, 9)))
    assert read("blurred.npz", OperatorOptions("blur"), scale=1.0).truth is not None
    scipy.sparse.save_npz(tmp_path / "matrix.npz", scipy.sparse.random_array((5, 12), density=0.5))
    np.save(tmp_path / "five.npy", np.ones(5))
    how = OperatorOptions("matrix", matrix=tmp_path / "matrix.npz")
    np.savez(tmp_path / "with_shape.npz", data=np.ones(5), shape=(3, 4))
    assert read("with_shape.npz", how, scale=2.0).operator.image_shape == (3, 4)
    with pytest.raises(ValueError, match="--size"):
        read("five.npy", how)
    with pytest.raises(ValueError, match="--scale"):
        read("with_shape.npz", how)
    assert plain.guessed
    assert read("sinogram.npy", sigma=None, estimate_noise=True).noise is None
    np.savez(tmp_path / "counted.npz", data=np.ones((6, 23)), angles=6, noise=0.1)
    assert read("counted.npz").noise == pytest.approx(0.1)
    assert read("counted.npz", estimate_noise=True).noise is None
    assert torch.equal(read("counted.npz").operator.angles, plain.operator.angles)
    whole = torch.rand(8, 9)
    np.savez(tmp_path / "whole.npz", data=whole.numpy(), mask=mask.numpy())
    torch.testing.assert_close(read("whole.npz", OperatorOptions("inpainting"), scale=1.0).data, whole[mask])
    clear = np.zeros((4, 4, 4), dtype=np.uint8)
    clear[:2, :, 3] = 255
    Image.fromarray(clear).save(tmp_path / "clear.png")
    shown = read("clear.png").truth
    assert shown is not None
    assert shown.mean(1).tolist() == [0, 0, 1, 1], "what is transparent is white"
    for name in ("rectangles", "shepp_logan"):
        found = measured(MeasurementOptions(name, size=12), OperatorOptions("inpainting", keep=0.5))
        assert found.operator.measurements == 72
        assert found.truth is not None


def test_a_guess_that_is_reached_is_told_and_white_is_the_largest_that_there_is() -> None:
    operator, truth = RayTransform((12, 12), 6), 0.5 * shepp_logan(12)
    data = operator(truth)
    found = reconstruct(operator, data, 0.1, prior=DeepImagePrior(SkipUNet(width=2), steps=3))
    largest = float(found.mean.max())
    near, far = (Measured(operator, data, 0.1, factor * largest, truth, guessed=True) for factor in (1.01, 1.5))
    assert "--scale" in str(ceiling(near, found))
    assert ceiling(far, found) is None
    assert ceiling(replace(near, guessed=False), found) is None
    assert white(near, found) == max(largest, float(truth.max()))
    assert white(replace(far, guessed=False), found) == far.scale


@pytest.mark.release
def test_a_run_warns_of_a_guess_that_is_reached(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(classical, "HEADROOM", 0.3)
    np.save(tmp_path / "sinogram.npy", RayTransform((16, 16), 12)(shepp_logan(16)).numpy())
    assert run("reconstruct", tmp_path / "sinogram.npy", "--output", tmp_path / "found", *TINY) == 0
    assert "give the largest value with --scale" in capsys.readouterr().err
    assert "the guessed largest value" in (tmp_path / "found" / "report.html").read_text()


BAD = {
    "nothing": ((), "name the data to reconstruct from"),
    "no such file": (("missing.png",), "there is no file 'missing.png'"),
    "no such data": (("missing.npz",), "there is no file 'missing.npz'"),
    "no picture": (("broken.png",), "cannot be read as a picture"),
    "no archive": (("broken.npz",), "cannot be read as a file of NumPy"),
    "an archive without data": (("empty.npz",), "one must be called data or sinogram or y"),
    "NaN": (("holes.npy",), "1 of 46 measurements are NaN"),
    "an unknown operator": (("shepp_logan", "--operator", "mri"), "unknown operator 'mri'"),
    "no noise": (("shepp_logan", "--noise", "0"), "--noise"),
    "negative noise": (("shepp_logan", "--noise=-0.1"), "--noise"),
    "the noise of measured data": (("shepp_logan", "--sigma", "1"), "the noise of a picture's measurement is --noise"),
    "the noise of a picture": (("holes.npy", "--noise", ".1"), "the noise of measured data is --sigma"),
    "no angles": (("shepp_logan", "--angles", "0"), "number of angles"),
    "a matrix without its file": (("shepp_logan", "--operator", "matrix"), "needs --matrix FILE"),
    "other angles than the data": (("sinogram.npy", "--angles", "9"), "(9, 23)"),
    "a picture made larger": (("small.png", "--size", "50"), "is not enlarged"),
    "a black picture": (("black.png",), "black"),
    "a picture without pixels": (("shepp_logan", "--size", "0"), "--size must be a whole number of at least 1"),
    "no scale": (("shepp_logan", "--scale", "0"), "--scale must be positive"),
    "a truth with one axis": (("line.npz",), "the truth must be an image (H, W)"),
    "a shape with three axes": (("deep.npz",), "the shape in the file says (1, 16, 16)"),
    "several noises": (("noises.npz",), "is one standard deviation, not 2"),
    "an array of another name": (("named.npz",), "an unknown array 'theta'"),
    "two arrays of data": (("twice.npz",), "one must be called"),
    "the noise given and estimated": (("sinogram.npy", "--sigma", "1", "--estimate_noise", "true"), "choose one"),
    "an option of another operator": (("shepp_logan", "--operator", "blur", "--angles", "9"), "--operator radon"),
    "complex data": (("complex.npy",), "real numbers, not complex"),
    "other angles than the file": (("angles.npz", "--angles", "7"), "--angles is 7"),
    "angles in degrees": (("degrees.npz",), "must be in radians"),
    "two shapes": (("truth.npz", "--size", "9"), "--size says (9, 9)"),
    "a folder in place of a file": (("small.png", "--output", "small.png"), "is a file: name a folder"),
    "a mask without its operator": (("seen.npz",), "use --operator inpainting"),
    "data of another shape": (
        ("sinogram.npy", "--operator", "blur", "--size", "8", "--scale", "1"),
        "must have shape (8, 8), got (6, 23)",
    ),
    "too many pixels": (("masked.npz", "--operator", "inpainting", "--scale", "1"), "must have shape (2,), got (3,)"),
    "a mask and a share": (
        ("seen.npz", "--operator", "inpainting", "--scale", "1", "--keep", ".5"),
        "leave --keep out",
    ),
    "angles without rays": (("angles.npz", "--operator", "blur", "--scale", "1"), "use --operator radon"),
    "a matrix without its operator": (("shepp_logan", "--matrix", "complex.npy"), "--operator matrix"),
    "an empty matrix": (
        ("shepp_logan", "--operator", "matrix", "--matrix", "nothing.npy"),
        "cannot be read as a matrix",
    ),
    "an empty sinogram": (("flat.npy",), "it is empty"),
    "a sinogram with three axes": (("cube.npy",), "a sinogram has two axes"),
    "a folder": (("folder.npy",), "is a folder"),
    "a single pixel": (("shepp_logan", "--size", "1"), "too small for a network"),
    "an unknown rule": (("shepp_logan", "--size", "8", "--stopping", "soon"), "unknown stopping rule 'soon'"),
    "an unknown objective": (("shepp_logan", "--objective", "mle"), "unknown objective 'mle'"),
    "an unknown option": (("shepp_logan", "--angels", "9"), "--angles"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_reconstructed_is_told_in_a_sentence(
    what: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("broken.png", "broken.npz"):
        Path(name).write_text("nothing", encoding="utf-8")
    np.savez("empty.npz", other=np.ones(3))
    holes = np.ones((2, 23), dtype=np.float32)
    holes[1, 3] = np.nan
    np.save("holes.npy", holes)
    np.save("sinogram.npy", np.ones((6, 23)))
    data = np.ones((6, 23), dtype=np.float32)
    np.savez("seen.npz", data=np.ones(3), mask=np.ones((1, 3), dtype=bool))
    Path("nothing.npy").touch()
    Path("folder.npy").mkdir()
    np.save("flat.npy", np.ones((0, 20)))
    np.save("cube.npy", np.ones((2, 3, 4)))
    np.savez("line.npz", data=data, truth=np.ones(5))
    np.savez("deep.npz", data=data, shape=(1, 16, 16))
    np.savez("noises.npz", data=data, noise=[1.0, 2.0])
    np.save("complex.npy", data + 1j)
    np.savez("named.npz", data=data, theta=np.arange(6.0))
    np.savez("twice.npz", data=data, sinogram=data)
    np.savez("angles.npz", data=data, angles=np.linspace(0, 3, 6))
    np.savez("masked.npz", data=np.ones(3), mask=np.array([[1, 0], [1, 0]], dtype=bool))
    np.savez("degrees.npz", data=data, angles=np.linspace(0, 150, 6))
    np.savez("truth.npz", data=data, truth=np.ones((16, 16)))
    Image.new("L", (8, 8), 90).save("small.png")
    Image.new("L", (8, 8), 0).save("black.png")
    words, said = BAD[what]
    assert run("reconstruct", *words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
