"""The equally weighted mixture of several predictives."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, MixtureSameFamily, MultivariateNormal

from osculate.likelihoods._base import with_standard_error

#: A function that joins tensors along an axis: ``torch.stack`` or ``torch.cat``.
Join = Callable[[list[Tensor], int], Tensor]


def mixed(predictives: Sequence[Distribution]) -> Distribution:
    r"""(1/M) Σ_m p_m(y) for distributions of one family: probabilities averaged, or a mixture of that family.

    Mixtures contribute their components, with 1/M of their weights; probabilities keep their standard errors.

    Args:
        predictives: p_m, of the same batch shape.

    Raises:
        ValueError: distributions of different families, or of a family that cannot be built from its parameters.

    Cost: one copy of the parameters.

    >>> normals = [torch.distributions.Normal(torch.zeros(3), 1.0), torch.distributions.Normal(torch.ones(3), 1.0)]
    >>> mixed(normals).variance
    tensor([1.2500, 1.2500, 1.2500])
    """
    first = predictives[0]
    if isinstance(first, Categorical | Bernoulli):
        probs = torch.stack([each.probs for each in predictives])  # type: ignore[attr-defined]
        together = type(first)(probs=probs.mean(0).clamp(0, 1))
        errors = [getattr(each, "standard_error", None) for each in predictives]
        if all(isinstance(error, Tensor) for error in errors):
            squares = torch.stack([error.square() for error in errors if error is not None])
            together = with_standard_error(together, squares.sum(0).sqrt() / len(errors))
        return together
    parts = [_as_mixture(each) for each in predictives]
    log_weights = torch.cat([part.mixture_distribution.logits for part in parts], -1)
    components = _together([part.component_distribution for part in parts], torch.cat)
    return MixtureSameFamily(Categorical(logits=log_weights), components)


def _as_mixture(predictive: Distribution) -> MixtureSameFamily:
    """A distribution as a mixture of one component."""
    if isinstance(predictive, MixtureSameFamily):
        return predictive
    component = _together([predictive], torch.stack)
    shape = (*predictive.batch_shape, 1)
    return MixtureSameFamily(Categorical(logits=predictive.mean.new_zeros(shape)), component)


def _together(parts: Sequence[Distribution], join: Join) -> Distribution:
    """Distributions of one family as one, along its last batch axis."""
    families = {type(part) for part in parts}
    if families == {MultivariateNormal}:  # it lists three equivalent parameters
        loc = join([part.loc for part in parts], -2)  # type: ignore[attr-defined]
        return MultivariateNormal(loc, scale_tril=join([part.scale_tril for part in parts], -3))  # type: ignore[attr-defined]
    try:
        (family,) = families
        parameters: dict[str, Any] = {n: join([getattr(p, n) for p in parts], -1) for n in parts[0].arg_constraints}
        return family(**parameters)
    except (TypeError, ValueError, AttributeError, NotImplementedError, RuntimeError) as error:
        names = ", ".join(sorted(family.__name__ for family in families))
        raise ValueError(
            f"the predictives of the members ({names}) cannot be joined in one mixture: this needs one family that can "
            "be built from the parameters in its arg_constraints. Predict with each member, or give the likelihood a "
            "marginal of torch.distributions."
        ) from error
