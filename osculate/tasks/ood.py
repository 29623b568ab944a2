"""Out-of-distribution detection: does the posterior notice inputs that it knows nothing about?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from osculate import metrics
from osculate.autoencoders import Representation
from osculate.tasks._scores import Predictives, Representations, Views

#: Numbers by name of the set and of the score.
Table = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class OODRecord:
    """The result of :func:`ood`.

    Args:
        inside: Scores of the in-distribution inputs, by name of the score.
        outside: Scores of the others, by name of the set and of the score.
        auroc: Area under the ROC curve of each score, by name of the set and of the score: 0.5 is chance, 1
            perfect.
        auprc: The same by average precision, outside the positive class; chance is their share of all inputs.
        auroc_error: Standard errors of ``auroc`` over new draws of the inputs.
        auprc_error: Standard errors of ``auprc``.
    """

    inside: Mapping[str, Tensor]
    outside: Mapping[str, Mapping[str, Tensor]]
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
    scores: Sequence[str] | None = None,
    train: Tensor | None = None,
    samples: int = 100,
    generator: torch.Generator | None = None,
    batch_size: int = 500,
    progress: bool = False,
    **predict_options: Any,
) -> OODRecord:
    r"""Score inputs from inside and outside the training distribution, and measure how well each score
    separates them.

    By a predictive: ``entropy``, ``max_probability`` (one minus it), ``functional_variance`` (the trace of the
    covariance of the outputs).

    By an autoencoder with networks θ_s: ``nll`` (-log p(x), the mean density over networks), ``typicality``
    (\|-log p(x) - E_train[-log p]\|), ``waic`` (-E_s log p_s + var_s log p_s), ``disagreement`` (Σ_s w_s² with
    w_s ∝ p(x|θ_s), one over the effective number of networks), ``latent_deviation`` and ``output_deviation`` (standard
    deviations of code and image by weights and codes, summed). One set of networks scores all data.
    [nalisnick2019typicality, choi2018waic, daxberger2019]

    By the input alone: ``mean_pixel``, the baseline.

    Args:
        q: Anything that ``osculate.predict`` takes, or an ``osculate.autoencoders.Representation``.
        inside: Inputs in distribution (N, …), from the test part.
        outside: Other inputs (M, …), or several such sets by name.
        scores: Names of scores; None takes all that this posterior and its likelihood have (a point has no functional
            variance, real-valued targets no most probable class, a mixture and counts no entropy in closed form, a
            single network no spread), and ``mean_pixel`` for autoencoders only.
        train: Training inputs, which ``typicality`` needs.
        samples: S, networks drawn where any are.
        generator: Source of random numbers.
        batch_size: Rows at a time; for autoencoders fewer where the images of all networks would take more than 256
            MiB.
        progress: Show a progress bar.
        **predict_options: Passed to ``osculate.predict``, for example ``link="probit"``.

    Raises:
        ValueError: an unknown score, an empty set, values that are not finite, a score that does not fit the
            likelihood or has no spread, no score that fits, or ``typicality`` without ``train``.
        TypeError: the functional variance of a posterior that has none; options that this kind of model does not take.

    Cost: for an autoencoder, S networks for each batch.

    >>> import osculate as osc
    >>> q = osc.posteriors.Point(torch.nn.Linear(2, 3), osc.likelihoods.Categorical())
    >>> ood(q, torch.randn(5, 2), torch.randn(5, 2)).auroc["outside"].keys()
    dict_keys(['entropy', 'max_probability'])
    >>> from osculate.autoencoders import Autoencoder, Representation
    >>> net = Autoencoder(torch.nn.Linear(6, 2), torch.nn.Linear(2, 6))
    >>> r = Representation(osc.posteriors.Point(net, osc.likelihoods.Gaussian(0.5)))
    >>> x = torch.randn(9, 6)
    >>> ood(r, x[:5], x[5:], train=x).auroc["outside"].keys()
    dict_keys(['nll', 'typicality', 'mean_pixel'])
    """
    others = {"outside": outside} if isinstance(outside, Tensor) else dict(outside)
    _require_inputs(inside, others, train, one_shape=isinstance(q, Representation))
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, but a batch needs at least one row.")
    views: Views
    if isinstance(q, Representation):
        if predict_options:
            raise TypeError(
                f"{', '.join(map(repr, predict_options))}: options of osc.predict, which an autoencoder's"
                " Representation is not scored by; leave them out."
            )
        views = Representations(q, train, samples, generator, batch_size, progress)
    elif train is not None:
        raise TypeError(
            f"train= is for the scores of an osc.autoencoders.Representation, not of a {type(q).__name__}: "
            "leave it out."
        )
    else:
        views = Predictives(q, batch_size, progress, {"samples": samples, "generator": generator, **predict_options})
    chosen = views.scores(scores, inside)
    within = views.scored(inside, chosen, "scoring inside")
    found = {name: views.scored(x, chosen, f"scoring {name}") for name, x in others.items()}

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


def _require_inputs(inside: Tensor, outside: Mapping[str, Tensor], train: Tensor | None, one_shape: bool) -> None:
    if not outside:
        raise ValueError("there is no set of outside inputs to tell apart; pass a tensor, or tensors by name.")
    named = {"inside": inside} | {f"outside set {name!r}": x for name, x in outside.items()}
    for words, x in (named if train is None else {**named, "train": train}).items():
        if not len(x):
            raise ValueError(f"the {words} is empty: pass at least one input, or leave the set out.")
        wrong = ~x.isfinite()
        if bool(wrong.any()):
            row = int(wrong.flatten(1).any(1).nonzero()[0]) if x.ndim > 1 else int(wrong.nonzero()[0])
            raise ValueError(
                f"row {row} of the {words} holds {x[wrong][0].item()}: scores need finite inputs; drop such rows, or"
                " fill in what is missing."
            )
        if one_shape and x.shape[1:] != inside.shape[1:]:
            raise ValueError(
                f"the inputs of the {words} have shape {tuple(x.shape[1:])}, those of inside"
                f" {tuple(inside.shape[1:])}: resize them to one shape."
            )
