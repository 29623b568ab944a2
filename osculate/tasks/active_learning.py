"""Active learning: which inputs of an unlabelled pool to label."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from osculate import metrics
from osculate.batches import require_inputs
from osculate.checks import require_generator, require_whole
from osculate.inputs import Inputs, concatenate, count, moved, take
from osculate.likelihoods import Likelihood
from osculate.linalg import cholesky, eigh
from osculate.memory import require
from osculate.posteriors import Gaussian, as_gaussian, as_posterior
from osculate.posteriors.functions import function_posterior
from osculate.progress import track
from osculate.registry import choose, lookup
from osculate.tasks import _uncertainty as uncertainty
from osculate.tasks._predictions import predictions
from osculate.tasks._uncertainty import SAMPLES

#: Scores of each input by itself, by name.
MARGINAL: Mapping[str, Callable[..., Float[Tensor, " N"]]] = {
    "entropy": uncertainty.entropy,
    "bald": uncertainty.mutual_information,
    "variance": uncertainty.variance,
}
#: Scores of an input given those chosen before it.
JOINT = ("batch", "reduction")
#: All scores by name.
SCORES = (*MARGINAL, *JOINT, "random")


@dataclass(frozen=True, eq=False)
class Acquisition:
    """The result of :func:`acquire`.

    Args:
        indices: Rows of the pool to label, in the order of their choice.
        gains: Score of each when it was chosen: with "batch" the information of its label in addition to those
            before it, with "reduction" the uncertainty that it removes from an average input of the pool.
        scores: Score of every input of the pool by itself, NaN where it was not computed. For "batch" and "reduction"
            it is "bald", by which candidates are pre-selected.
    """

    indices: Int[Tensor, " count"]
    gains: Float[Tensor, " count"]
    scores: Float[Tensor, " N"]

    def metrics(self) -> dict[str, float]:
        """The mean of the gains and, of the scores, the mean over all inputs that have one."""
        return {"gain": float(self.gains.mean()), "score": float(self.scores.nanmean())}


def acquire(
    q: Any,
    pool: Inputs,
    count: int,
    score: str = "bald",
    *,
    among: int | None = None,
    candidates: int = 100,
    samples: int = SAMPLES,
    generator: torch.Generator | None = None,
    batch_size: int = 500,
    progress: bool = False,
) -> Acquisition:
    r"""Choose the inputs of a pool whose labels are worth most.

    Each input by itself, the ``count`` largest:

    * "entropy": H[y|x], the entropy of the predictive;
    * "bald": I[y; f \| x] = H[y|x] − E_f H[y|f], what a label says about the function, with f from the linearised
      predictive: exact as S grows for classes, ½ Σ_c log(1 + v_c/σ²) for Gaussian noise [houlsby2011; gal2017];
    * "variance": the trace of Cov f(x).

    Jointly, with the covariance K of the function values of several inputs, and the expected output Hessian
    Λ_n = E_f[−∂² log p(y|f)/∂f²], divided by the temperature of the posterior as those of its data are. Points are
    chosen one after another, each conditioning the Gaussian on its label:

    .. math:: g_n = \tfrac12 \log\det(I + \Lambda_n^{1/2} K_{nn} \Lambda_n^{1/2}), \qquad
              K \leftarrow K - K_{\cdot n} (\Lambda_n^{-1} + K_{nn})^{-1} K_{n \cdot}

    * "batch": the largest g_n, the information of all labels together, at least (1 − 1/e) of the best batch of the
      candidates. For Gaussian noise it is that of BatchBALD exactly, for classes a Gaussian approximation of it
      without a sum over Cᵇ labels; equal inputs are not chosen twice for nothing. [kirsch2019]
    * "reduction": the largest decrease of the mean of ½ tr Λ_m K_mm over inputs m drawn from the pool: what the label
      says about others, rather than about anything. [cohn1996; smith2023]

    "random" is the baseline of any rule.

    Args:
        q: A posterior, or what ``osc.train`` returned; Gaussian for "batch" and "reduction".
        pool: Inputs (N, …) without labels.
        count: Number of inputs to choose.
        score: Name of the score, from the list above.
        among: Number of inputs drawn at random from the pool that are scored; None scores all.
        candidates: Inputs of largest "bald" among which "batch" and "reduction" choose, at least ``count``; and for
            "reduction" the number of other inputs that represent the pool.
        samples: S, draws of the function.
        generator: Source of random numbers.
        batch_size: Inputs scored at a time.
        progress: Show a progress bar.

    Raises:
        ValueError: an unknown score, an empty pool or one with values that are not finite, a count that is larger than
            the pool, or a score that the likelihood does not have (an entropy in closed form, an output Hessian that
            does not depend on the target).
        TypeError: a posterior without the distribution of functions that the score needs.

    Cost: that of predicting the pool; "batch" and "reduction" also that of the joint covariance of M = ``candidates``
    inputs (twice as many for "reduction"), and (M·C)² C operations a choice.

    >>> import osculate as osc
    >>> X, Y = torch.randn(20, 2), torch.randint(3, (20,))
    >>> q = osc.laplace(torch.nn.Linear(2, 3), osc.likelihoods.Categorical(), (X, Y), prior=1.0, refine=False)
    >>> acquire(q, torch.randn(50, 2), 4, "batch").indices.shape
    torch.Size([4])
    """
    choose("score", score, SCORES)
    require_generator(generator)
    require_whole("samples", samples, 2)
    require_whole("batch_size", batch_size)
    require_whole("candidates", candidates)
    require_whole("count", count)
    if among is not None:
        require_whole("among", among)
    if score in JOINT:
        q = as_gaussian(q, f"acquire(score={score!r})")
    size = _size(pool)
    most = size if among is None else min(among, size)
    if count > most:
        raise ValueError(
            f"{count} inputs are to be chosen, and {most} of the pool's {size} are scored: choose fewer, or score more."
        )
    if score in JOINT:
        inputs = min(most, max(candidates, count)) + (min(size, candidates) if score == "reduction" else 0)
        outputs = q.fit.plan.outputs
        require(
            4 * 8 * (inputs * outputs) ** 2,
            q.network.device,
            f"the joint covariances of {outputs:,} outputs at {inputs:,} inputs",
            "Take fewer candidates, or score='bald', which needs none.",
        )
    if score == "random":
        values = torch.rand(size, generator=generator)
        return Acquisition(*_top(values, count), values)
    rows = torch.arange(size) if among is None else torch.randperm(size, generator=generator)[:most].sort().values
    marginal = lookup("score", "bald" if score in JOINT else score, MARGINAL)
    parts = track(rows.split(batch_size), f"scores ({score})", -(-len(rows) // batch_size), progress)
    with torch.no_grad():
        found = torch.cat([marginal(q, take(pool, part), samples, generator).cpu() for part in parts])
    if not bool(found.any()):
        warnings.warn(
            f"{score!r} is zero for every input, so that the first of the pool are chosen: {type(q).__name__} has no "
            "uncertainty about the function there. Use 'entropy', or fit osc.laplace.",
            stacklevel=2,
        )
    scores = torch.full((size,), torch.nan, dtype=found.dtype)
    scores[rows] = found
    chosen, gains = _top(found, count)
    if score in JOINT:
        near = _top(found, min(max(candidates, count), most))[0]
        others = torch.randperm(size, generator=generator)[: candidates if score == "reduction" else 0]
        joint = _whitened(q, take(pool, torch.cat([rows[near], others])), samples)
        order, gains = _greedy(joint, count, len(others))
        chosen = near[order]
    return Acquisition(rows[chosen], gains, scores)


def _top(values: Float[Tensor, " N"], number: int) -> tuple[Int[Tensor, " count"], Float[Tensor, " count"]]:
    """Indices of the largest values, the largest first; equal ones in their order; and these values."""
    indices = values.argsort(descending=True, stable=True)[:number]
    return indices, values[indices]


@torch.no_grad()
def _whitened(q: Gaussian, x: Inputs, samples: int) -> Float[Tensor, "M C M C"]:
    """Λ^{1/2} K Λ^{1/2} of the function values at all inputs, Λ the expected Hessian of each over the temperature."""
    x = moved(x, q.network.device)
    covariance = function_posterior(q, x).joint[1]  # in double precision: whitening may cancel what is large
    hessian = _expected_hessian(q.likelihood, uncertainty.function_draws(q, x, samples)).double()
    values, vectors = eigh(hessian / q.temperature)
    halves = vectors * values.sqrt().unsqueeze(-2)
    size, outputs = halves.shape[:2]
    joint = covariance.reshape(size, outputs, size, outputs)
    return torch.einsum("mce,mcnd,ndf->menf", halves, joint, halves).cpu()


def _expected_hessian(likelihood: Likelihood, f: Float[Tensor, "S N *C"]) -> Float[Tensor, "N c c"]:
    """E_f[−∂² log p(y|f)/∂f²], for likelihoods in which it does not depend on y."""
    if not (likelihood.saturates or likelihood.quadratic):
        raise ValueError(
            f"the output Hessian of {type(likelihood).__name__} may depend on the target, which is unknown: "
            "use the score 'variance'."
        )
    draws = f.flatten(0, 1)
    each = likelihood.hessian(draws, likelihood.distribution(draws).mode)
    return each.reshape(*f.shape[:2], *each.shape[1:]).mean(0)


def _greedy(joint: Float[Tensor, "M C M C"], number: int, targets: int) -> tuple[Tensor, Tensor]:
    """Choose inputs one after another, each conditioning the whitened covariance on an observation of variance one.

    Args:
        joint: Covariances.
        number: Number of choices.
        targets: The last inputs of the covariance, whose mean variance is to fall; with none it is the information.
    """
    free = len(joint) - targets
    eye = torch.eye(joint.shape[1], dtype=joint.dtype)
    chosen: list[int] = []
    gains: list[Tensor] = []
    for _ in range(number):
        own = joint.diagonal(dim1=0, dim2=2).movedim(-1, 0)[:free]
        factor, info = torch.linalg.cholesky_ex(eye + own)
        if bool(info.any()):  # rounding exceeds one: without its negative eigenvalues
            values, vectors = eigh(own)
            factor = cholesky(eye + (vectors * values.unsqueeze(-2)) @ vectors.mT)
        if targets:
            fallen = torch.linalg.solve_triangular(factor, joint[:free, :, free:].flatten(2), upper=False)
            gain = 0.5 * fallen.square().sum((1, 2)) / targets
        else:
            gain = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        gain[chosen] = -torch.inf
        best = int(gain.argmax())
        chosen.append(best)
        gains.append(gain[best])
        half = torch.linalg.solve_triangular(factor[best], joint[best].flatten(1), upper=False)
        joint = joint - (half.mT @ half).reshape(joint.shape)
    return torch.tensor(chosen), torch.stack(gains)


#: A rule of choice: from a posterior, a pool, a number and a generator to an acquisition, or to rows.
Rule: TypeAlias = Callable[..., Acquisition | Sequence[int] | Tensor]


@dataclass(frozen=True, eq=False)
class ActiveLearning:
    """The result of :func:`active_learning`.

    Args:
        indices: Rows of the pool in the order in which they were labelled.
        labels: Number of labels of each fit.
        scores: Scores of each fit on the test data by name: accuracy and NLL of classes, RMSE and NLL of real values.
        posterior: The last fit.
    """

    indices: Int[Tensor, " L"]
    labels: tuple[int, ...]
    scores: Mapping[str, Float[Tensor, " R"]]
    posterior: Any

    def metrics(self) -> dict[str, float]:
        """Every score under the name ``<score>/<labels>``."""
        return {
            f"{name}/{number}": float(value)
            for name, values in self.scores.items()
            for number, value in zip(self.labels, values, strict=True)
        }


def _rows(name: str, rows: Any, size: int) -> Int[Tensor, " n"]:
    """Rows of a pool as a tensor.

    Raises:
        TypeError: they are no whole numbers.
        ValueError: one is not in the pool, or there twice.
    """
    try:
        found = torch.as_tensor(rows)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be rows of the pool, got {rows!r:.80}.") from error
    if found.ndim != 1 or found.is_floating_point() or found.dtype == torch.bool:
        raise TypeError(f"{name} must be rows of the pool, whole numbers along one axis, got {rows!r:.80}.")
    if len(found) == 0 or int(found.min()) < 0 or int(found.max()) >= size or len(found.unique()) < len(found):
        raise ValueError(f"{name} must be different rows from 0 to {size - 1}, got {rows!r:.80}.")
    return found.long()


def active_learning(
    fit: Callable[[Inputs, Tensor], Any],
    pool: Inputs,
    label: Tensor | Callable[[Int[Tensor, " n"]], Tensor],
    test: tuple[Inputs, Tensor],
    *,
    rule: str | Rule = "batch",
    first: int | Sequence[int] | Int[Tensor, " n"] = 20,
    count: int = 20,
    rounds: int = 10,
    seed: int = 0,
    batch_size: int = 500,
    progress: bool = False,
    **predict_options: Any,
) -> ActiveLearning:
    """Label a few inputs of a pool, and in each round those that a posterior of the labels so far chooses.

    Args:
        fit: A function from labelled inputs and their labels to a posterior. It should train anew, not go on.
        pool: Inputs (N, …).
        label: Labels of the pool (N, …), or a function from rows of the pool to their labels.
        test: Inputs and targets on which each fit is scored.
        rule: A score of :func:`acquire`, or a function like it of (posterior, pool, count, generator=…), such as
            ``partial(osc.tasks.acquire, score="batch", among=1000)``; it gets what is not labelled yet, and returns an
            :class:`Acquisition`, or rows alone.
        first: Number of inputs labelled at random at the start, or their rows.
        count: Inputs labelled in each round.
        rounds: Number of rounds; there is a fit more.
        seed: Seed of the first choice and of the rule; one seed labels the same first inputs for every rule.
        batch_size: Test inputs predicted at a time.
        progress: Show a progress bar.
        **predict_options: Passed to ``osculate.predict`` for the test data, for example ``via="mode"``.

    Raises:
        ValueError: more labels are asked for than the pool has, labels of another length, rows that are not in the
            pool, an unknown rule, or as :func:`acquire`.
        TypeError: ``first`` or the choice of a rule are no rows.

    Cost: rounds + 1 fits and predictions of the test data, and ``rounds`` acquisitions.

    >>> import osculate as osc
    >>> X = torch.randn(60, 2)
    >>> Y = (X[:, 0] > 0).long()
    >>> def fit(x, y):
    ...     net = torch.nn.Linear(2, 2)
    ...     method = osc.methods.MAP(net, osc.likelihoods.Categorical(), 1.0)
    ...     osc.train(method, (x, y), epochs=20, lr=0.1, progress=False)
    ...     return osc.laplace(net, osc.likelihoods.Categorical(), (x, y), prior=1.0, refine=False)
    >>> active_learning(fit, X, Y, (X, Y), rule="bald", first=5, count=2, rounds=3).labels
    (5, 7, 9, 11)
    """
    size = _size(pool)
    require_whole("count", count)
    require_whole("rounds", rounds)
    if isinstance(rule, str):
        rule = partial(acquire, score=choose("rule", rule, SCORES))
    if isinstance(label, Tensor) and len(label) != size:
        raise ValueError(f"the pool has {size} inputs and {len(label)} labels: give each one label, or a function.")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(size, generator=generator)
    if isinstance(first, int):
        require_whole("first", first)
        labelled = order[:first]
    else:
        labelled = _rows("first", first, size)
    start = first if isinstance(first, int) else len(labelled)
    if start + count * rounds > size:
        raise ValueError(
            f"{start} labels and {rounds} rounds of {count} are {start + count * rounds}, and the pool has {size} "
            "inputs: label fewer, or pass a larger pool."
        )
    ask = label.__getitem__ if isinstance(label, Tensor) else label
    y, x = ask(labelled), take(pool, labelled)
    labels, found = [], []
    posterior: Any = None
    for number in track(range(rounds + 1), "rounds of labels", rounds + 1, progress):
        if number:
            rest = torch.ones(size, dtype=torch.bool).index_fill(0, labelled, False).nonzero().squeeze(1)
            chosen = rule(posterior, take(pool, rest), count, generator=generator)
            new = rest[_rows("the choice of the rule", getattr(chosen, "indices", chosen), len(rest))]
            labelled, y = torch.cat([labelled, new]), torch.cat([y, ask(new)])
            x = concatenate([x, take(pool, new)])
        posterior = fit(x, y)
        labels.append(len(labelled))
        found.append(_tested(posterior, test, batch_size, predict_options))
    scores = {name: torch.tensor([each[name] for each in found], dtype=torch.double) for name in found[0]}
    return ActiveLearning(labelled, tuple(labels), scores, posterior)


def _tested(q: Any, test: tuple[Inputs, Tensor], batch_size: int, options: dict[str, Any]) -> dict[str, float]:
    """Accuracy or RMSE, and NLL, summed over the outputs of a datum."""
    likelihood = as_posterior(q).likelihood
    found = list(predictions(q, test, batch_size, False, "", options))
    y = torch.cat([targets for _, _, targets in found])
    nll = -metrics.log_likelihood(torch.cat([p.log_prob(t.to(p.mean.device)).cpu() for p, _, t in found]))
    if likelihood.real_valued:
        return {"rmse": metrics.rmse(torch.cat([p.mean.cpu() for p, _, _ in found]), y), "nll": nll}
    right = [p.mode.cpu() == targets.cpu() for p, _, targets in found]
    return {"accuracy": float(torch.cat(right).double().mean()), "nll": nll}


def _size(pool: Inputs) -> int:
    """The number of inputs, which are finite."""
    require_inputs(pool)
    return count(pool)
