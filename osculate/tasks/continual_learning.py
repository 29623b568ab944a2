"""Continual learning: data sets one after another, each under the posterior of those before it as prior."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate import metrics
from osculate.batches import Data, as_batches
from osculate.checks import require_positive
from osculate.inputs import tensors
from osculate.likelihoods import Likelihood
from osculate.methods import MAP
from osculate.methods.laplace import laplace_in_training
from osculate.methods.map import as_prior
from osculate.posteriors import Gaussian
from osculate.posteriors.earlier import Earlier, require_adding
from osculate.priors import Prior
from osculate.progress import track
from osculate.registry import made
from osculate.structures import REGISTRY, Structure
from osculate.tasks.calibration import columns
from osculate.tasks.comparison import losses_of
from osculate.training.train import train


@dataclass(frozen=True, eq=False)
class ContinualRecord:
    """The result of :func:`continual_learning`: row t has the scores after task t, column s those on task s.

    Args:
        posterior: The posterior after the last task, which is the prior for further ones.
        log_likelihood: Mean log likelihood of the test data, in nats (T, T).
        accuracy: Accuracy on the test data (T, T); None if the targets are numbers.
    """

    posterior: Gaussian
    log_likelihood: Float[Tensor, "T T"]
    accuracy: Float[Tensor, "T T"] | None

    @property
    def scores(self) -> Float[Tensor, "T T"]:
        """The accuracy, or the log likelihood if the targets are numbers."""
        return self.log_likelihood if self.accuracy is None else self.accuracy

    @property
    def average(self) -> Float[Tensor, " T"]:
        """The score after each task, averaged over the tasks so far."""
        return torch.stack([row[: number + 1].mean() for number, row in enumerate(self.scores)])

    @property
    def backward_transfer(self) -> float:
        """The change of the scores of earlier tasks since they were learned; below zero they were forgotten.

        The mean of R_Ts − R_ss over the tasks s < T, with the scores R. [lopezpaz2017]
        """
        return float((self.scores[-1] - self.scores.diag())[:-1].mean())

    def metrics(self) -> dict[str, float]:
        """The final average, the backward transfer, and each score as ``after_<t>/task_<s>``, from 1."""
        return {
            "average": float(self.average[-1]),
            "backward_transfer": self.backward_transfer,
            **{
                f"after_{after}/task_{task}": float(value)
                for after, row in enumerate(self.scores, 1)
                for task, value in enumerate(row, 1)
            },
        }


def continual_learning(
    model: nn.Module,
    likelihood: Likelihood,
    tasks: Sequence[Data],
    tests: Sequence[Data],
    *,
    structure: str | Structure = "kron",
    prior: Any = 1.0,
    weight: float = 1.0,
    decay: float = 1.0,
    via: str = "mode",
    progress: bool = False,
    **training: Any,
) -> ContinualRecord:
    r"""Learn tasks one after another, each with the posterior of the earlier ones as prior, and test on all of them.

    .. math:: \theta_t = \operatorname{argmax}_\theta \log p(D_t \mid \theta) - \tfrac{\gamma}{2}
              (\theta - \theta_{t-1})^\top \Lambda_{t-1} (\theta - \theta_{t-1}), \qquad
              \Lambda_t = \gamma \Lambda_{t-1} + \lambda G_t

    with G_t the curvature of the data D_t at θ_t; before the first task, θ_0 and γ Λ_0 are mean and precision of the
    prior. Each training begins at the mode of the task before. For a linear model with Gaussian noise and λ = γ = 1 the
    result is the posterior of all data, whatever the order of the tasks. ``structure="kron"`` is the online structured
    Laplace approximation [ritter2018], ``"diag"`` is elastic weight consolidation [kirkpatrick2017], online
    [schwarz2018].

    The network has one head for all tasks. Tasks may differ in their inputs, or in which classes they have; where these
    are numbered from 0 in each task, it learns to tell first from second classes.

    Args:
        model: The network f_θ; trained in place.
        likelihood: p(y|f).
        tasks: Training data of each task, in the order of learning.
        tests: Test data of each task.
        structure: Structure of the posteriors, whose curvatures must add: "kron", "diag", "full", "block", "dual", ….
        prior: p(θ) before the first task: a precision, an object of ``osculate.priors``, or an earlier posterior, such
            as that of another record.
        weight: λ, weight of the data of each task once they count as prior. Above 1 less is forgotten and less is
            learned; choose it on held-out data. "diag" takes a larger one than "kron".
        decay: γ; below 1 earlier tasks fade with each further one.
        via: Predictive of the scores, see :func:`osculate.predict`: "mode" for the network alone.
        progress: Show a progress bar.
        **training: Options of :func:`osculate.train`, such as ``epochs``, ``batch_size``, ``lr`` and ``seed``.

    Raises:
        ValueError: fewer than two tasks, another number of test sets, inputs of different shapes, or a weight or decay
            that is not positive.
        TypeError: a structure whose curvatures do not add, or an option that does not exist.

    Cost: T trainings and Laplace approximations, and predictions for T² test sets. With "kron" the prior of each step
    of the training costs as much as one product of each weight matrix with a square one on either side.

    >>> import osculate as osc
    >>> x = torch.randn(2, 40, 3)
    >>> y = (x.sum(-1) > 0).long()
    >>> data = list(zip(x, y))
    >>> record = continual_learning(nn.Linear(3, 2), osc.likelihoods.Categorical(), data, data, epochs=2)
    >>> record.accuracy.shape, record.average.shape
    (torch.Size([2, 2]), torch.Size([2]))
    """
    matrix = made("structure", structure, REGISTRY, Structure)
    require_adding(matrix)
    require_positive("weight", weight)
    require_positive("decay", decay)
    _require_tasks(tasks, tests)
    if isinstance(prior, str):
        raise ValueError(
            f"the prior before the first task must be given, got {prior!r}: a precision, such as that of "
            "osc.maximise_evidence on the first task, or an object of osc.priors."
        )
    present: Prior = as_prior(prior, model)
    rows = []
    for number in track(range(len(tasks)), "tasks", len(tasks), progress):
        train(MAP(model, likelihood, present), tasks[number], **{"progress": False} | training)
        q = laplace_in_training(model, likelihood, tasks[number], 1 / weight, structure=matrix, prior=present)
        rows.append([_score(q, test, via) for test in tests])
        earlier = Earlier.of(q)
        present = earlier.with_precision(decay * earlier.precision)
    scores = torch.tensor(rows, dtype=torch.double)
    known = not bool(scores[..., 1].isnan().any())
    return ContinualRecord(q, scores[..., 0], scores[..., 1] if known else None)


def _score(q: Gaussian, test: Data, via: str) -> tuple[float, float]:
    """The mean log likelihood, and the accuracy, NaN for numbers."""
    discrete, found = columns(q, test, 500, False, "", {"via": via})
    accuracy = metrics.accuracy(found[0].exp(), found[1]) if discrete else torch.nan
    return -float(losses_of(discrete, found).mean()), accuracy


def _shapes(data: Data) -> dict[str, tuple[int, ...]]:
    """The shapes of the inputs of one datum, by name."""
    x, _ = next(as_batches(data))
    return {name: tuple(tensor.shape[1:]) for name, tensor in tensors(x).items()}


def _require_tasks(tasks: Sequence[Data], tests: Sequence[Data]) -> None:
    for name, sets in (("tasks", tasks), ("tests", tests)):
        if not isinstance(sets, Sequence):
            raise TypeError(
                f"{name} must be a list of data sets, got {type(sets).__name__}: each is read several times."
            )
    if len(tasks) < 2:
        raise ValueError(
            f"a sequence has at least two tasks, got {len(tasks)}: pass a list of data sets in the order of learning. "
            "For one data set, train methods.MAP and fit osc.laplace."
        )
    if len(tests) != len(tasks):
        raise ValueError(f"there are {len(tasks)} tasks and {len(tests)} test sets: give each task one.")
    for data in (*tasks, *tests):
        if isinstance(data, Iterator):
            raise TypeError(
                f"{type(data).__name__} can be read only once, and a task is read more often: pass lists of batches, "
                "DataLoaders or pairs of tensors (X, Y)."
            )
    wanted = _shapes(tasks[0])
    for words, sets in (("the training data", tasks), ("the test data", tests)):
        for number, data in enumerate(sets, 1):
            if (found := _shapes(data)) != wanted:
                raise ValueError(
                    f"{words} of task {number} have inputs of shape {_shown(found)}, the first task of "
                    f"{_shown(wanted)}: one network learns all tasks, so resize them to one shape."
                )


def _shown(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {shape}".strip() for name, shape in shapes.items())
