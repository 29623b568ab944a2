"""Out-of-distribution detection by scores of a posterior."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from osculate import metrics
from osculate.autoencoders import Autoencoder, Representation
from osculate.posteriors import as_posterior
from osculate.predictive.predict import predict
from osculate.progress import track
from osculate.registry import lookup
from osculate.tasks._inputs import TrainingInputs, mean_pixel
from osculate.tasks._scores import Predictives, Representations, Views, need, telling

#: Options of ``osculate.predict``.
OPTIONS = inspect.signature(predict).parameters
#: Values by name of the set and of the score.
Table = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class OODRecord:
    """The result of :func:`ood`.

    Args:
        inside: Scores of the in-distribution inputs, by name of the score.
        outside: Scores of the out-of-distribution inputs, by name of the set and of the score.
        auroc: Area under the ROC curve of each score, by name of the set and of the score: 0.5 is chance, 1
            perfect.
        auprc: The same by average precision, outside the positive class; chance is their share of all inputs.
        auroc_error: Standard errors of ``auroc`` over new draws of the inputs.
        auprc_error: Standard errors of ``auprc``.
    """

    inside: Mapping[str, Tensor] = field(repr=False)
    outside: Mapping[str, Mapping[str, Tensor]] = field(repr=False)
    auroc: Table
    auprc: Table
    auroc_error: Table
    auprc_error: Table

    def metrics(self) -> dict[str, float]:
        """Every AUROC and AUPRC under the names ``auroc/<set>/<score>`` and ``auprc/<set>/<score>``."""
        return {
            f"{kind}/{name}/{score}": value
            for kind, table in (("auroc", self.auroc), ("auprc", self.auprc))
            for name, scores in table.items()
            for score, value in scores.items()
        }


def ood(
    q: Any,
    inside: Tensor,
    outside: Tensor | Mapping[str, Tensor],
    *,
    scores: str | Sequence[str] | None = None,
    train: Tensor | None = None,
    blank: bool = False,
    samples: int = 100,
    generator: torch.Generator | None = None,
    batch_size: int = 500,
    progress: bool = False,
    **predict_options: Any,
) -> OODRecord:
    r"""Score inputs from inside and outside the training distribution, and measure how well each score separates them.

    By a predictive: ``entropy``, ``max_probability`` (one minus it), ``functional_variance`` (the trace of the
    covariance of the outputs).

    By an autoencoder with networks θ_s: ``nll`` (-log p(x), the mean density over networks), ``typicality``
    (\|-log p(x) - E_train[-log p]\|), ``waic`` (-E_s log p_s + var_s log p_s), ``disagreement`` (Σ_s w_s² with
    w_s ∝ p(x|θ_s), one over the effective number of networks), ``latent_deviation`` and ``output_deviation`` (standard
    deviations of code and image by weights and codes, summed), ``relative_deviation`` (that of the linearised image
    under a Gaussian posterior, over the same under isotropic noise of the weights). One set of networks scores all
    data. [nalisnick2019typicality, choi2018waic, daxberger2019]

    By the input alone, without any network: ``mean_pixel``, and with ``train``, X: ``unlit_pixels`` (Σ |x_d| over the
    entries that differ from zero in fewer than a thousandth of the training inputs), ``diagonal_leverage``
    (Σ_d x_d² / (1 + Σ_n X_nd²)), ``leverage`` (xᵀ(XᵀX + I)⁻¹x), ``nearest_input`` (distance to the nearest training
    input), ``principal_components`` (-log p under a Gaussian with the components that explain 95 % of the variance).
    A score of a network is worth what it adds to these. [tipping1999]

    Args:
        q: Anything that ``osculate.predict`` takes, or an ``osculate.autoencoders.Representation``; None for the scores
            of the input alone. A posterior over an autoencoder is scored as its representation, or by its predictive if
            this alone has the scores or takes the options, or if it has no representation (refined posteriors, and
            samples that differ in parameters of q(z|x)).
        inside: Inputs in distribution (N, …), from the test part.
        outside: Other inputs (M, …) in the same units, or several such sets by name.
        scores: Name of a score, or several names; None takes all that this posterior and its likelihood have (a point
            has no functional variance, real-valued targets no most probable class, a mixture and counts no entropy in
            closed form, a single network no spread), ``mean_pixel`` for autoencoders and without a posterior, and with
            ``train`` all of the input alone (without those that need a matrix of more than 4,096 rows).
        train: Training inputs, which ``typicality`` and the scores of the input alone need: some thousand of them.
        blank: Set the entries that are never lit in training inputs to zero in all inputs, so that they tell nothing.
        samples: S, networks drawn where any are.
        generator: Source of random numbers.
        batch_size: Rows at a time; for autoencoders fewer where the images of all networks would take more than 256
            MiB.
        progress: Show a progress bar.
        **predict_options: Passed to ``osculate.predict``, for example ``link="probit"``.

    Raises:
        ValueError: an unknown score, an empty set, values that are not finite, a score that does not fit the
            likelihood or has no spread, no score that fits, or a score that needs ``train``, or ``blank``, without it.
        TypeError: inputs that are not tensors, or not all whole numbers or all real; the functional variance of a
            posterior that has none; options that this kind of model does not take.

    Cost: for an autoencoder, S networks for each batch, and 2 S Jacobian-vector products for ``relative_deviation``; by
    N training inputs of D entries alone, O(N D M + M³) once with M = min(N, D), and O(N D) for each input.

    >>> import osculate as osc
    >>> q = osc.posteriors.Point(torch.nn.Linear(2, 3), osc.likelihoods.Categorical())
    >>> ood(q, torch.randn(5, 2), torch.randn(5, 2)).auroc["outside"].keys()
    dict_keys(['entropy', 'max_probability'])
    >>> x = torch.randn(9, 6)
    >>> list(ood(None, x[:5], x[5:], train=x).auroc["outside"])[:3]
    ['mean_pixel', 'diagonal_leverage', 'leverage']
    >>> from osculate.autoencoders import Autoencoder, Representation
    >>> net = Autoencoder(torch.nn.Linear(6, 2), torch.nn.Linear(2, 6))
    >>> r = Representation(osc.posteriors.Point(net, osc.likelihoods.Gaussian(0.5)))
    >>> list(ood(r, x[:5], x[5:], train=x).auroc["outside"])[:5]
    ['nll', 'typicality', 'mean_pixel', 'diagonal_leverage', 'leverage']
    """
    scores = [scores] if isinstance(scores, str) else scores
    predict_options = {
        name: value for name, value in predict_options.items() if value is not None or name not in OPTIONS
    }
    q = _with_codes(q, scores or (), bool(predict_options))
    if not isinstance(outside, Tensor | Mapping):
        raise TypeError(f"outside is a {type(outside).__name__}: pass a tensor, or a dict of tensors by name.")
    others = dict(outside) if isinstance(outside, Mapping) else {"outside": outside}
    words = {name: f"outside inputs {name!r}" if isinstance(outside, Mapping) else "outside inputs" for name in others}
    _require_inputs(
        inside,
        {words[name]: x for name, x in others.items()},
        train,
        one_shape=train is not None or isinstance(q, Representation),
    )
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
    if blank:
        if train is None:
            raise ValueError("blank=True blanks what is never lit in training inputs: pass them as train=.")
        blanked = TrainingInputs(train).blanked
        train, inside = blanked(train), blanked(inside)
        others = {name: blanked(x) for name, x in others.items()}
    if predict_options and (q is None or isinstance(q, Representation)):
        kind = "the scores of inputs alone do" if q is None else "an autoencoder's Representation does"
        raise TypeError(
            f"{', '.join(map(repr, predict_options))}: options of osc.predict, which {kind} not take: leave them out."
        )
    views: Views | None
    if q is None:
        views = None
    elif isinstance(q, Representation):
        views = Representations(q, train, samples, generator, batch_size, progress)
    else:
        options = {"samples": samples, "generator": generator, **predict_options}
        views = Predictives(q, batch_size, progress, options)
    scored = _scoring(views, train, scores, inside, batch_size, progress)
    within = scored(inside, "inside inputs")
    found = {name: scored(x, words[name]) for name, x in others.items()}

    def table(measure: Callable[[Tensor, Tensor], float]) -> Table:
        return {name: {s: measure(within[s], values) for s, values in each.items()} for name, each in found.items()}

    return OODRecord(
        within,
        found,
        auroc=table(metrics.auroc),
        auprc=table(metrics.auprc),
        auroc_error=table(metrics.auroc_error),
        auprc_error=table(metrics.auprc_error),
    )


def _with_codes(q: Any, scores: Sequence[str], options: bool) -> Any:
    """Return the representation of a posterior over an autoencoder, and anything else as it is.

    A posterior also stays as it is where only its predictive can answer: with options of ``osc.predict``, for scores
    that a representation does not have, or if it has no representation.

    Args:
        q: Posterior, representation, or None.
        scores: Names of scores, if the user gives some.
        options: True if there are options of ``osc.predict``.

    Raises:
        ValueError: scores of codes and scores of a predictive at once, or those of codes of a posterior that has no
            representation.
    """
    if q is None or isinstance(q, Representation):
        return q
    posterior = as_posterior(q)
    if not isinstance(posterior.model, Autoencoder):
        return q
    of_codes = [name for name in scores if name in Representations.known]
    of_outputs = [name for name in scores if name in Predictives.known]
    if of_codes and of_outputs:
        raise ValueError(
            f"the scores {', '.join(map(repr, of_codes))} are of codes and images,"
            f" {', '.join(map(repr, of_outputs))} of a predictive: ask for them by two calls."
        )
    if not of_codes and (of_outputs or options):
        return q
    try:
        return Representation(posterior)
    except ValueError:
        if of_codes:
            raise
        return q


def _scoring(
    views: Views | None,
    train: Tensor | None,
    wanted: Sequence[str] | None,
    inside: Tensor,
    batch_size: int,
    progress: bool,
) -> Callable[[Tensor, str], dict[str, Tensor]]:
    """Return a function from inputs, and words for them, to the scores that are wanted, or all that fit.

    Raises:
        ValueError: an unknown score, one of another kind of model, or one that needs training inputs without any.
    """
    inputs = None if train is None else TrainingInputs(train)
    alone = {"mean_pixel": mean_pixel} | dict({} if inputs is None else inputs.scores())
    of_views = {} if views is None else views.known
    known = {**of_views, **alone}
    if wanted is None:
        fits = {} if views is None else views.fitting(inside)
        beside = ("mean_pixel",) if views is None or inputs is not None else views.beside
        fits = {**fits, **dict.fromkeys(beside, True), **({} if inputs is None else inputs.fitting())}
        wanted = [name for name, fit in fits.items() if fit]
    else:
        for name in wanted:
            if name not in known and (needed := need(name)):
                here = ", ".join(map(repr, known))
                raise ValueError(f"the score {name!r} needs {needed}. The scores that can be had here are {here}.")
            lookup("score", name, known)
        if views is not None:
            views.require([name for name in wanted if name in of_views], inside)
    by_model = [name for name in dict.fromkeys(wanted) if name in of_views]
    by_input = [name for name in dict.fromkeys(wanted) if name in alone]

    def scored(x: Tensor, words: str) -> dict[str, Tensor]:
        found = {} if views is None else views.scored(x, by_model, words)
        if by_input:
            batches = track(x.split(batch_size), f"comparing {words}", -(-len(x) // batch_size), progress)
            with telling(words):
                rows = [torch.stack([alone[name](part) for name in by_input]) for part in batches]
            found.update(zip(by_input, torch.cat(rows, 1), strict=True))
        return {name: found[name] for name in wanted}

    return scored


def _require_inputs(inside: Tensor, outside: Mapping[str, Tensor], train: Tensor | None, one_shape: bool) -> None:
    if not outside:
        raise ValueError("there are no outside inputs: pass a tensor, or tensors by name.")
    beside = {} if train is None else {"training inputs": train}
    for words, x in {"inside inputs": inside, **outside, **beside}.items():
        if not isinstance(x, Tensor):
            raise TypeError(
                f"the {words} are a {type(x).__name__}: pass a tensor of inputs (N, …), without targets, such as"
                " data.test[0], or torch.as_tensor(array)."
            )
        if x.is_floating_point() != inside.is_floating_point():
            raise TypeError(
                f"the {words} are {x.dtype} and the inside inputs {inside.dtype}, as if some were counted and others"
                " measured: give all inputs in the same units."
            )
        if not x.ndim:
            raise ValueError(f"the {words} are one number: pass inputs (N, …).")
        if not len(x):
            raise ValueError(f"the {words} are empty: pass at least one input, or leave the set out.")
        wrong = ~x.isfinite()
        if bool(wrong.any()):
            row = int(wrong.flatten(1).any(1).nonzero()[0]) if x.ndim > 1 else int(wrong.nonzero()[0])
            raise ValueError(
                f"row {row} of the {words} has {x[wrong][0].item()}: scores need finite inputs. Drop such rows, or"
                " impute missing values."
            )
        if one_shape and x.shape[1:] != inside.shape[1:]:
            raise ValueError(
                f"the {words} have shape {tuple(x.shape[1:])}, the inside inputs {tuple(inside.shape[1:])}: resize them"
                " to one shape."
            )
