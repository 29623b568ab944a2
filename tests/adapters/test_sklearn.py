"""Estimators of scikit-learn, by its own checks and in its own tools."""

import pickle
import warnings
from functools import partial
from time import process_time
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import osculate as osc

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, scale
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from osculate.adapters.sklearn import LaplaceClassifier, LaplaceRegressor

X = np.random.default_rng(0).normal(size=(80, 3))
LABELS = np.where(X[:, 0] + X[:, 1] ** 2 > 1, "same", "other")
VALUES = 100 + 10 * np.sin(2 * X[:, 0]) + np.random.default_rng(1).normal(size=80)
ESTIMATORS = [LaplaceClassifier(), LaplaceRegressor()]
LONG = ("check_classifiers_train", "check_classifiers_classes", "check_classifier_data_not_an_array")
#: Their fits on data of a few rows are no study of calibration.
quiet = pytest.mark.filterwarnings("ignore:the effective number of parameters", "ignore:the evidence has no maximum")


def classifier(**options: Any) -> LaplaceClassifier:
    return LaplaceClassifier(**{"epochs": 30, "random_state": 0, **options})


def regressor(**options: Any) -> LaplaceRegressor:
    return LaplaceRegressor(**{"epochs": 60, "random_state": 0, **options})


@pytest.mark.slow
@quiet
@parametrize_with_checks(ESTIMATORS[:1])  # those of the other run before a release, below
def test_the_checks_of_sklearn(estimator: Any, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if check.func.__name__ in LONG:
        pytest.skip("it takes more than ten seconds and is run before a release, below")
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # scikit-learn sets values of any type
    check(estimator)


@pytest.mark.release
@quiet
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_the_checks_take_at_most_two_minutes(estimator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # scikit-learn sets values of any type
    start = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(estimator)
    assert process_time() - start < 120
    assert {each["status"] for each in found} <= {"passed", "skipped"}  # skipped: arrays of other libraries
    assert sum(each["status"] == "skipped" for each in found) <= 1


def test_a_classifier_with_words_as_labels() -> None:
    fitted = classifier().fit(X, LABELS)
    assert fitted.classes_.tolist() == ["other", "same"]
    probabilities = fitted.predict_proba(X)
    assert probabilities.shape == (80, 2)
    assert probabilities.dtype == np.float64
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert fitted.score(X, LABELS) > 0.8
    assert (fitted.predict(X) == fitted.classes_[probabilities.argmax(1)]).all()
    x = torch.tensor(fitted.scaler_.transform(X[:5]))
    np.testing.assert_allclose(osc.predict(fitted.posterior_, x).probs, probabilities[:5])


@pytest.mark.slow
def test_standard_deviations_include_the_noise_and_have_the_units_of_the_targets() -> None:
    fitted = regressor().fit(X, VALUES)
    mean, std = fitted.predict(X, return_std=True)
    assert mean.shape == std.shape == (80,)
    assert np.array_equal(mean, fitted.predict(X))
    noise = float(fitted.posterior_.likelihood.scale) * fitted.target_scaler_.scale_[0]
    assert 0.5 < noise < 3  # it was 1
    assert std.min() >= noise
    assert (np.abs(VALUES - mean) < 2 * std).mean() > 0.85
    assert fitted.predict([[50.0, 0, 0]], return_std=True)[1] > 2 * std.max()


@pytest.mark.parametrize(
    "prior",
    [1, *(pytest.param(each, marks=pytest.mark.release) for each in (np.float64(0.1), osc.priors.Isotropic(2.0)))],
)
def test_a_prior_of_the_user_stays_and_the_noise_is_chosen(prior: Any) -> None:
    fitted = regressor(prior=prior).fit(X, VALUES)
    expected = prior.precision if isinstance(prior, osc.priors.Isotropic) else prior
    assert float(fitted.posterior_.prior.precision) == pytest.approx(float(expected))
    assert 0.03 < float(fitted.posterior_.likelihood.scale) < 0.6
    labels = classifier(prior=prior, epochs=3).fit(X, LABELS)
    assert float(labels.posterior_.prior.precision) == pytest.approx(float(expected))


@pytest.mark.slow
def test_several_targets_and_single_precision() -> None:
    Y = np.stack([VALUES, -3 * X[:, 1]], 1)
    fitted = regressor(epochs=20).fit(X.astype(np.float32), Y)
    mean, std = fitted.predict(X, return_std=True)
    assert mean.shape == std.shape == (80, 2)
    assert fitted.posterior_.mean.dtype == torch.float32
    assert fitted.score(X, Y) > 0.5


def test_a_network_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def network(features: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(features, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, outputs))

    fitted = classifier(network=network, structure="diag").fit(X, LABELS)
    assert fitted.network_[0].out_features == 7
    assert fitted.posterior_.structure.structure.name == "diag"
    assert not fitted.network_.training
    assert [p.numel() for p in classifier(network=4, epochs=1).fit(X, LABELS).network_.parameters()] == [12, 4, 8, 2]
    assert len(list(classifier(network=(), epochs=1).fit(X, LABELS).network_.parameters())) == 2
    with pytest.raises(
        TypeError, match="widths of hidden layers, or a function of the numbers of features.*got Linear"
    ):
        classifier(network=nn.Linear(3, 2)).fit(X, LABELS)
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # users run without checks of types
    with pytest.raises(TypeError, match="got str"):
        classifier(network="mlp").fit(X, LABELS)
    with pytest.raises(TypeError, match="got str"):
        classifier(network=lambda features, outputs: "mlp").fit(X, LABELS)


@pytest.mark.parametrize("estimator", [classifier, pytest.param(regressor, marks=pytest.mark.release)])
def test_a_learning_rate_by_trials(estimator: Any) -> None:
    y = LABELS if estimator is classifier else VALUES
    chosen = estimator(lr="auto", epochs=80).fit(X, y)
    assert chosen.score(X, y) > 0.8
    assert not np.array_equal(
        chosen.predict(X), estimator(lr=1e-3, epochs=80).fit(X, y).predict(X)
    )  # not the usual one


def test_devices() -> None:
    fitted = classifier(device="auto", epochs=3).fit(X, LABELS)
    assert fitted.posterior_.mean.device.type == "cpu"  # every machine reads its files
    assert next(fitted.network_.parameters()).device.type == "cpu"
    with pytest.raises(ValueError, match="unknown device 'gpu'"):
        classifier(device="gpu").fit(X, LABELS)


def test_wrong_data_and_settings_are_named() -> None:
    with pytest.raises(ValueError, match="one class cannot be told from others"):
        classifier().fit(X, ["same"] * 80)
    with pytest.raises(ValueError, match="epochs must be a whole number"):
        classifier(epochs=0).fit(X, LABELS)
    with pytest.raises(ValueError, match="contains NaN"):
        regressor().fit(np.where(X > 2, np.nan, X), VALUES)
    with pytest.raises(NotFittedError):
        classifier().predict(X)


def test_seeds_and_the_user_s_random_numbers() -> None:
    state = torch.get_rng_state()
    first, second = (classifier(epochs=3).fit(X, LABELS).predict_proba(X) for _ in "ab")
    assert np.array_equal(first, second)
    assert not np.array_equal(first, classifier(epochs=3, random_state=1).fit(X, LABELS).predict_proba(X))
    assert torch.equal(state, torch.get_rng_state())


def test_clones_files_and_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    fitted = regressor(epochs=5, network=(4, 4)).fit(frame, pandas.Series(VALUES))
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[["b", "a", "c"]])
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    assert not hasattr(fresh, "posterior_")
    text = pickle.dumps(fitted)
    assert np.array_equal(pickle.loads(text).predict(frame), fitted.predict(frame))
    assert fitted.posterior_.data is None  # no training data in files


def test_a_pipeline() -> None:
    pipeline = make_pipeline(MinMaxScaler(), classifier()).fit(X, LABELS)
    assert pipeline.predict_proba(X).shape == (80, 2)
    assert pipeline.score(X, LABELS) > 0.8


@pytest.mark.release
def test_a_search_over_priors_by_two_jobs() -> None:
    grid = {"prior": ["evidence", 0.1, 100.0]}
    search = GridSearchCV(classifier(epochs=5), grid, scoring="neg_log_loss", cv=2, n_jobs=2, error_score="raise")
    assert search.fit(X, LABELS).best_params_["prior"] in grid["prior"]
    alone = GridSearchCV(classifier(epochs=5), grid, scoring="neg_log_loss", cv=2, error_score="raise").fit(X, LABELS)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])


@pytest.mark.release
@pytest.mark.parametrize("data", [load_iris, load_digits, load_diabetes])
def test_defaults_are_about_as_accurate_as_those_of_sklearn(data: Any) -> None:
    x, y = data(return_X_y=True)
    regression = data is load_diabetes
    mine = (LaplaceRegressor if regression else LaplaceClassifier)(random_state=0)
    kind = partial(MLPRegressor if regression else MLPClassifier, hidden_layer_sizes=(50,), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sklearn's network would go on
        theirs = cross_val_score(kind(), scale(x), scale(y) if regression else y, cv=3).mean()
    assert cross_val_score(mine, x, y, cv=3).mean() > theirs - 0.005
