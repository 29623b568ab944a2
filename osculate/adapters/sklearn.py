"""A posterior as an estimator of scikit-learn: tables in, probabilities or values with standard deviations out."""

from collections.abc import Callable, Iterator, Sequence
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from osculate.checks import require_library, require_whole
from osculate.evidence import refine
from osculate.likelihoods import Categorical, Gaussian as GaussianNoise, Likelihood
from osculate.methods import MAP, EvidenceUpdates, MarginalLikelihood, Method, laplace
from osculate.networks import MLP
from osculate.predictive import predict
from osculate.priors import Prior
from osculate.randomness import seeded
from osculate.structures import Structure
from osculate.training import train

require_library("sklearn", "estimators")
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils import check_random_state, gen_batches  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402

#: Floating types of tables; others become the first one.
TYPES = (np.float64, np.float32)
#: Steps of an epoch, and rows of a step at least and at most.
STEPS, FEWEST, MOST = 20, 64, 512
#: Rows that are predicted at once.
ROWS = 4096
#: Updates of precisions and noise in the training of a regression, and the noise scale before the first one.
UPDATES, NOISE = 20, 0.5
#: The prior by the evidence, and the precision with which a classifier is trained under it.
EVIDENCE, PRECISION = "evidence", 1.0
#: The device of an accelerator, if there is one.
AUTO = "auto"
#: Widths of hidden layers, or a function from the numbers of features and of outputs to a module with fresh weights.
Architecture: TypeAlias = int | Sequence[int] | Callable[[int, int], nn.Module]


class _OfTables(BaseEstimator):
    """The settings and the training that both estimators share; inputs are standardised."""

    def __init__(  # settings are kept as they are until the fit, as scikit-learn demands
        self,
        network: Architecture = (50,),
        prior: str | int | float | np.number | Prior = EVIDENCE,
        structure: str | Structure = "auto",
        epochs: int = 100,
        lr: float | str = 1e-2,
        random_state: int | np.integer | np.random.RandomState | None = None,
        device: str = "cpu",
    ) -> None:
        self.network = network
        self.prior = prior
        self.structure = structure
        self.epochs = epochs
        self.lr = lr
        self.random_state = random_state
        self.device = device

    def _read(self, X: Any, y: Any, **checks: Any) -> tuple[np.ndarray, np.ndarray]:
        """Checked arrays of a fit."""
        return validate_data(self, X, y, dtype=TYPES, ensure_min_samples=2, **checks)

    def _learn(self, X: np.ndarray, Y: Tensor, outputs: int, likelihood: Likelihood) -> None:
        """Train a network on standardised inputs, and fit its posterior."""
        require_whole("epochs", self.epochs)
        self.scaler_ = StandardScaler().fit(X)
        x = self._standardised(X)
        prior = float(self.prior) if isinstance(self.prior, Real) else self.prior
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        with seeded(seed):
            network = self._built(X.shape[1], outputs).to(x.dtype)
        device = ("cuda" if torch.cuda.is_available() else "cpu") if self.device == AUTO else self.device
        train(
            self._method(network, likelihood, prior),
            (x, Y),
            epochs=self.epochs,
            lr=self.lr,
            batch_size=min(max(len(x) // STEPS, FEWEST), MOST),
            seed=seed,
            device=device,
            progress=False,
            distributed=False,
        )
        self.network_ = network.eval()
        fixed_noise = likelihood.has_noise and not _by_evidence(prior)
        q = laplace(
            network.to(device),
            likelihood,
            (x, Y),
            structure=self.structure,
            prior=prior,
            refine=False if fixed_noise else "auto",
            distributed=False,
        )
        if fixed_noise:  # the precision is the user's, the noise that of the evidence
            q = refine(q, trust=None, noise=True)
        network.cpu()
        self.posterior_ = q.replace(data=None).to("cpu")  # files of the estimator hold no training data

    def _built(self, inputs: int, outputs: int) -> nn.Module:
        """The network with fresh weights.

        Raises:
            TypeError: ``network`` is neither widths nor a function that makes a module.
        """
        made, own = None, callable(self.network) and not isinstance(self.network, nn.Module)
        if own:
            made = self.network(inputs, outputs)  # type: ignore[operator]
        elif (widths := np.atleast_1d(np.asarray(self.network))).size == 0 or widths.dtype.kind in "iu":
            made = MLP(inputs, widths.tolist(), outputs)
        if not isinstance(made, nn.Module):
            raise TypeError(
                "network must be widths of hidden layers, or a function of the numbers of features and of outputs that "
                f"returns a torch.nn.Module with fresh weights, got {type(made if own else self.network).__name__}."
            )
        return made

    def _method(self, network: nn.Module, likelihood: Likelihood, prior: Any) -> Method:
        """The way to the mode: precisions and noise of a regression are learned on it, if the evidence chooses them."""
        if not _by_evidence(prior):
            return MAP(network, likelihood, prior)
        if not likelihood.has_noise:
            return MAP(network, likelihood, PRECISION)
        return MarginalLikelihood(network, likelihood, settings=EvidenceUpdates(every=max(1, self.epochs // UPDATES)))

    def _standardised(self, X: np.ndarray) -> Tensor:
        """Inputs of the network."""
        return torch.tensor(self.scaler_.transform(X))

    def _predicted(self, X: Any) -> Iterator[Any]:
        """Predictives of some rows at a time."""
        check_is_fitted(self)
        x = self._standardised(validate_data(self, X, dtype=TYPES, reset=False)).to(self.posterior_.mean.dtype)
        return (predict(self.posterior_, x[rows]) for rows in gen_batches(len(x), ROWS))


class LaplaceClassifier(ClassifierMixin, _OfTables):
    """A classifier of tables: a network, trained by MAP, with a Laplace posterior over its parameters.

    It stands wherever a classifier of scikit-learn stands: in pipelines, searches over settings and calibration.
    Columns are standardised first, which a prior with one precision for all of them supposes. The network is trained
    for a fixed number of epochs with a learning rate that falls to zero; nothing is held out.

    Args:
        network: Widths of the hidden layers of an MLP with tanh (a number is one layer), or a function from the numbers
            of features and of outputs to a module with fresh weights.
        prior: "evidence" (precisions by the evidence, after a training with precision 1), a prior precision for
            training and posterior, or an object of ``osc.priors``.
        structure: Structure of the curvature, by name or an object of ``osc.structures``.
        epochs: Passes over the data.
        lr: Largest learning rate, or "auto" by short trials (see :class:`osculate.training.Settings`).
        random_state: Seed of weights and order, a ``numpy.random.RandomState``, or None for other ones in each fit.
        device: Device of the training and of the fit, such as "cuda", or "auto" for a GPU if there is one. The results
            are on the CPU, so that every machine reads the files of an estimator.

    Attributes:
        classes_: Labels (C,), in the order of the columns of probabilities.
        posterior_: The posterior, for ``osc.predict`` and all else, over standardised columns.
        network_: The trained network.
        scaler_: The ``StandardScaler`` of the columns.
        n_features_in_: Number of columns.
        feature_names_in_: Their names, if the table has names.

    Cost: 20 steps an epoch, of at least 64 and at most 512 rows each (more steps from 10,000 rows on), and then that of
    :func:`osculate.methods.laplace.laplace`.

    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = np.where(X[:, 0] > 0, "right", "left")
    >>> LaplaceClassifier(epochs=30, random_state=0).fit(X, y).predict([[1.0, 0.0]])
    array(['right'], dtype='<U5')
    """

    classes_: np.ndarray

    def fit(self, X: Any, y: Any) -> "LaplaceClassifier":
        """Train the network and fit the posterior.

        Args:
            X: Table (N, d) of real numbers: an array or a data frame.
            y: Labels (N,) of any type.

        Raises:
            ValueError: values that are not finite or not real numbers, a single class, labels that are not discrete, or
                a device that this machine does not have.
            TypeError: ``network`` is neither widths nor a function that makes a module.
        """
        X, y = self._read(X, y)
        check_classification_targets(y)
        self.classes_, indices = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"the labels are all {self.classes_[0]!r}, and one class cannot be told from others.")
        self._learn(X, torch.from_numpy(indices).long(), len(self.classes_), Categorical())
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (N, C) under the posterior predictive.

        Args:
            X: Table (N, d).
        """
        return np.concatenate([each.probs.numpy() for each in self._predicted(X)])

    def predict(self, X: Any) -> np.ndarray:
        """The most probable labels (N,).

        Args:
            X: Table (N, d).
        """
        chosen = self.predict_proba(X).argmax(1)
        return self.classes_[chosen]


class LaplaceRegressor(RegressorMixin, _OfTables):
    """A regression of tables: a network with a Laplace posterior and Gaussian noise whose scale is learned.

    It stands wherever a regression of scikit-learn stands. Columns and targets are standardised first. Precisions and
    noise are learned during training too where the evidence chooses them
    (:class:`osculate.methods.MarginalLikelihood`); nothing is held out.

    Args:
        network: Widths of the hidden layers of an MLP with tanh (a number is one layer), or a function from the numbers
            of features and of outputs to a module with fresh weights.
        prior: "evidence" (precisions by the evidence), a prior precision for training and posterior, or an object of
            ``osc.priors``. The noise scale is chosen by the evidence with each of them.
        structure: Structure of the curvature, by name or an object of ``osc.structures``.
        epochs: Passes over the data.
        lr: Largest learning rate, or "auto" by short trials (see :class:`osculate.training.Settings`).
        random_state: Seed of weights and order, a ``numpy.random.RandomState``, or None for other ones in each fit.
        device: Device of the training and of the fit, such as "cuda", or "auto" for a GPU if there is one. The results
            are on the CPU, so that every machine reads the files of an estimator.

    Attributes:
        posterior_: The posterior, for ``osc.predict`` and all else, over standardised columns and targets.
        network_: The trained network.
        scaler_: The ``StandardScaler`` of the columns.
        target_scaler_: The ``StandardScaler`` of the targets.
        n_features_in_: Number of columns.
        feature_names_in_: Their names, if the table has names.

    Cost: that of :class:`LaplaceClassifier`, and 20 passes for the evidence.

    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> regression = LaplaceRegressor(epochs=50, random_state=0).fit(X, np.sin(3 * X[:, 0]))
    >>> mean, std = regression.predict([[0.0], [4.0]], return_std=True)
    >>> bool(std[0] < std[1])
    True
    """

    def __sklearn_tags__(self) -> Any:
        """Capabilities for scikit-learn: targets (N, m) too."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> "LaplaceRegressor":
        """Train the network and fit the posterior.

        Args:
            X: Table (N, d) of real numbers: an array or a data frame.
            y: Targets (N,), or (N, m) for m outputs with noise of the same share of their standard deviations.

        Raises:
            ValueError: values that are not finite or not real numbers, or a device that this machine does not have.
            TypeError: ``network`` is neither widths nor a function that makes a module.
        """
        X, y = self._read(X, y, multi_output=True, y_numeric=True)
        targets = y.astype(X.dtype).reshape(len(y), -1)
        self.target_scaler_ = StandardScaler().fit(targets)
        self._single = y.ndim == 1
        Y = torch.tensor(self.target_scaler_.transform(targets))
        self._learn(X, Y, Y.shape[1], GaussianNoise(NOISE if _by_evidence(self.prior) else 1.0))
        return self

    def predict(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The mean of the posterior predictive, in the units and the shape of the targets.

        Args:
            X: Table (N, d).
            return_std: Return the standard deviation too, in which the observation noise is included.
        """
        each = list(self._predicted(X))
        mean = self.target_scaler_.inverse_transform(np.concatenate([part.mean.numpy() for part in each]))
        mean = mean[:, 0] if self._single else mean
        if not return_std:
            return mean
        std = np.concatenate([part.stddev.numpy() for part in each]) * self.target_scaler_.scale_
        return mean, std[:, 0] if self._single else std


def _by_evidence(prior: Any) -> bool:
    return isinstance(prior, str) and prior == EVIDENCE
