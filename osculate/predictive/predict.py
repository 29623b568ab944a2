"""The posterior predictive p(y*|x*)."""

import warnings
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from osculate.batches import require_inputs
from osculate.checks import require_generator, require_whole
from osculate.curvature.engine import AFFORDABLE, are_costly
from osculate.inputs import Inputs, count, from_arrays, moved, take, tensors
from osculate.likelihoods import Likelihood, Link
from osculate.memory import NEGLIGIBLE, free, require, sparing
from osculate.posteriors import Ensemble, Gaussian, Mixture, Posterior, Sampled, as_gaussian, as_posterior
from osculate.posteriors.linearised import (
    all_outputs,
    deviations,
    drawn_functions,
    interacting_outputs,
    joint_covariance,
    linear_functions,
    mean_function,
    moments,
    require_room,
    single_outputs,
)
from osculate.predictive import link as links
from osculate.predictive.mixed import mixed
from osculate.predictive.sampled import network_at_mode, sampled_networks, warn_if_far_worse
from osculate.registry import choose, lookup

#: The link that integrates over draws of the function, without a covariance.
FUNCTIONS = "functions"
#: Draws, and draws where they are the way of the default.
SAMPLES, FEW = 100, 16
#: Interacting outputs up to which a default forms their covariances.
LARGEST = 4096


def predict(
    q: Any,
    x: Any,
    *,
    via: str | None = None,
    link: str | Link | None = None,
    noise: bool = True,
    joint: str | None = None,
    samples: int | None = None,
    memory: str | int | None = None,
    generator: torch.Generator | None = None,
) -> Distribution:
    r"""The posterior predictive p(y|x) = ∫ p(y | f(x; θ)) q(θ) dθ.

    Args:
        q: A posterior, or what ``osc.train`` returned.
        x: Inputs (N, …): a tensor or NumPy array, a tuple of them (``model(*x)``) or a mapping (``model(**x)``).
        via: "linearised" (the default for a Gaussian posterior: f is linear in θ, in closed form up to the link),
            "sampled" (the network itself at sampled weights), "members" (those of an ensemble), "dropout" (passes with
            dropout active), "mode" (the network as it is). A posterior's ``ways`` lists its own, the default first.
        link: Method of integrating probabilities over Gaussian logits: "mc" (a fixed quasi-random set with the full
            covariance of the logits, deterministic; the default for classes), "probit" (the default for Bernoulli),
            "bridge", "mean_field", or an object of ``osc.predictive.link``. Real-valued targets need none.
            "functions" integrates over ``samples`` draws of the linearised function instead, for very many interacting
            outputs (thousands of classes at many positions): no covariance is built. By default seeded draws are the
            way where a backward pass for each output would take long, which is said.
        noise: Include observation noise, for real-valued targets.
        joint: "outputs" (the joint over the outputs of each input) or "batch" (the joint over all inputs and outputs),
            for real-valued targets.
        samples: Number of draws for ``via="sampled"`` and ``link="functions"``, shared by all inputs, or of passes with
            dropout; by default 100, and 16 where the default takes draws. An ensemble predicts with all its members
            instead, and a mixture divides the draws among its members.
        memory: Bytes that the call may take, or a text such as "2GB"; by default about 256 MiB or a quarter of the
            free memory, on a GPU 8 GiB or half of it.
        generator: Source of random numbers.

    Returns:
        A ``torch.distributions`` object: ``Categorical`` or ``Bernoulli`` with probabilities, ``Normal`` of shape
        (N, C) for a Gaussian likelihood, ``MultivariateNormal`` for a joint, a mixture of normals for sampled networks,
        and of the members' distributions for a :class:`osculate.posteriors.Mixture`. Probabilities that are averages
        over draws (``link="functions"``, "sampled", "dropout") have their Monte Carlo error in the attribute
        ``standard_error``, of the same shape.

    Raises:
        ValueError: an unknown ``via``, ``link`` or ``joint``, one that does not fit the likelihood, an empty or
            non-finite input, covariances that do not fit into the free memory, or ``samples`` below 1.
        TypeError: ``generator`` is not a ``torch.Generator``.

    Cost: "linearised": one forward and C backward passes without weight gradients; with ``link="functions"`` S
    Jacobian-vector products, about three forward passes each. "sampled": S forward passes. Class probabilities of
    draws are added up as they come.
    [immer2021]

    >>> import osculate as osc
    >>> X, Y = torch.randn(30, 2), torch.randn(30, 1)
    >>> q = osc.laplace(torch.nn.Linear(2, 1), osc.likelihoods.Gaussian(0.5), (X, Y), prior=1.0)
    >>> osc.predict(q, X[:4])
    Normal(loc: torch.Size([4, 1]), scale: torch.Size([4, 1]))
    """
    posterior = as_posterior(q)
    x = from_arrays(x, posterior.network.dtype)
    by_draws = link is None and via is None and joint is None and _draws_are_cheaper(posterior, x)
    if by_draws:
        samples, generator = samples or FEW, generator or torch.Generator().manual_seed(0)
        warnings.warn(
            f"predicted with {samples} draws of the function in place of a backward pass for each of the outputs: take "
            f"more for smaller Monte Carlo errors, samples={SAMPLES}.",
            stacklevel=2,
        )
        if posterior.likelihood.needs_covariance(choose_link(posterior.likelihood, None)):
            link = FUNCTIONS
    samples = SAMPLES if samples is None else samples
    require_whole("samples", samples)
    require_generator(generator)
    via = _way(posterior, x, via, noise, joint)
    if isinstance(posterior, Mixture):
        same = partial(predict, x=x, via=via, link=link, noise=noise, joint=joint, memory=memory, generator=generator)
        return mixed([same(member, samples=max(1, share)) for member, share in posterior.shares(samples)])
    likelihood = posterior.likelihood
    if link == FUNCTIONS:
        if via != "linearised" or joint is not None:
            what = f"joint={joint!r}" if joint else f"via={via!r}"
            raise ValueError(
                f"link={FUNCTIONS!r} draws linearised functions input by input: it does not go with {what}. Leave one "
                "of them out; for joint draws use osc.sample_functions."
            )
        _require_room_for_mixture(posterior, x, samples)
        functions = linear_functions(as_gaussian(posterior, "linearised"), x, samples, generator, memory)
        return likelihood.mixture_of_parts(functions, noise)
    if isinstance(link, str):
        _require_use_of_link(link, likelihood, via)
    link = choose_link(likelihood, link)
    if via == "linearised":
        assert isinstance(posterior, Gaussian)  # no other posterior has this way
        if by_draws:
            f, variance = _drawn_moments(posterior, x, samples, generator, memory)
            return likelihood.marginal(f, variance, link, noise=noise)
        with sparing(memory):
            return _linearised(posterior, x, link, noise, joint, memory)
    if isinstance(posterior, Sampled) and via != "mode":
        _require_room_for_mixture(posterior, x, samples)
        warn_if_far_worse(posterior)
        draws = sampled_networks(posterior, x, samples, generator, memory)
        return likelihood.mixture_of_parts((f.unsqueeze(0) for f in draws), noise)
    f = network_at_mode(posterior.network, x, memory)
    return likelihood.distribution(f) if noise else likelihood.mixture(f.unsqueeze(0), noise=False)


def _draws_are_cheaper(q: Posterior, x: Inputs) -> bool:
    """True if a column for each output, or the covariances of the outputs, would take long by default."""
    if not isinstance(q, Gaussian) or (outputs := q.fit.plan.outputs) <= AFFORDABLE or not tensors(x) or not count(x):
        return False
    if any(tensor.requires_grad for tensor in tensors(x).values()) or q.differentiated:
        return False
    if len(q.fit.plan.blocks) > 1 and are_costly(outputs, count(x), q.fit.plan, q.network.device):
        return True
    if outputs <= LARGEST or not q.likelihood.needs_covariance(choose_link(q.likelihood, None)):
        return False
    with torch.no_grad():
        return q.likelihood.events(q.network(moved(take(x, slice(1)), q.network.device))) > LARGEST


def _drawn_moments(
    q: Gaussian, x: Inputs, samples: int, generator: torch.Generator | None, memory: str | int | None
) -> tuple[Tensor, Tensor]:
    """The mean of the function, and the mean squares of draws around it."""
    squares = (tangents.square().sum(0) for _, tangents in deviations(q, x, samples, generator, memory))
    variance = reduce(torch.add, squares) / samples
    f = network_at_mode(q.network, x, memory).to(variance.dtype)
    return mean_function(q, moved(x, q.network.device), f), variance


def _way(posterior: Posterior, x: Any, via: str | None, noise: bool, joint: str | None) -> str:
    """The way to predict, after checks of inputs and options."""
    require_inputs(x)
    via = choose(
        f"way to predict with a {type(posterior).__name__} posterior", via or posterior.ways[0], posterior.ways
    )
    if joint is not None:
        choose("joint", joint, ("outputs", "batch"))
    if not noise and not posterior.likelihood.real_valued:
        raise ValueError(
            f"noise=False is for real-valued targets, and {type(posterior.likelihood).__name__} has none to exclude. "
            "For the uncertainty of the logits use osc.functional_variance or osc.sample_functions."
        )
    if joint is not None and via != "linearised":
        raise ValueError(f"joint predictives are Gaussian: use via='linearised', not {via!r}.")
    return via


def sample_functions(
    q: Any,
    x: Any,
    samples: int = 100,
    *,
    via: str | None = None,
    memory: str | int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Draw functions: f(x; θ*) + J(x)(θ_s − θ*) ("linearised"), or f(x; θ_s) (all other ways).

    Args:
        q: A posterior that is not a point, or what ``osc.train`` returned.
        x: Inputs (N, …).
        samples: S; an ensemble gives each of its members once instead, a mixture draws from its members in turn.
        via: "linearised" (the default for a Gaussian posterior) or "sampled", "members", "dropout", as in
            :func:`predict`.
        memory: Bytes that temporaries may take, as in :func:`predict`; the draws themselves come on top.
        generator: Source of random numbers.

    Returns:
        (S, N, C) function values, the same draw of the weights for all inputs.

    Raises:
        ValueError: an unknown ``via``, fewer than one sample, or an empty or non-finite input.
        TypeError: a point, from which nothing can be drawn.

    Cost: one Jacobian-vector product (about two forward passes) or one forward pass a sample; nothing of size
    N × C × P, and no covariance.

    >>> import osculate as osc
    >>> X, Y = torch.randn(30, 2), torch.randn(30, 3)
    >>> q = osc.laplace(torch.nn.Linear(2, 3), osc.likelihoods.Gaussian(), (X, Y), prior=1.0)
    >>> sample_functions(q, X[:5], samples=6).shape
    torch.Size([6, 5, 3])
    """
    posterior = as_posterior(q)
    x = from_arrays(x, posterior.network.dtype)
    if not isinstance(posterior, Sampled):
        raise TypeError(
            f"a {type(posterior).__name__} posterior has a single function, and no distribution to sample: fit "
            "osc.laplace(model, likelihood, data), or use osc.predict."
        )
    ways = [way for way in posterior.ways if way != "mode"]
    via = choose("way to sample functions", via or ways[0], ways)
    require_inputs(x)
    require_whole("samples", samples)
    require_generator(generator)
    require_room_for_draws(posterior, x, samples, 2, "Draw fewer samples, or at fewer inputs at once.")
    if via == "linearised":
        return drawn_functions(posterior, x, samples, generator, memory)
    warn_if_far_worse(posterior)
    return torch.stack(list(sampled_networks(posterior, x, samples, generator, memory)))


def choose_link(likelihood: Likelihood, link: str | Link | None) -> Link:
    """The link that a user named, or the likelihood's default.

    Raises:
        ValueError: an unknown link, or one that does not fit the likelihood.
    """
    if link is None:
        link = likelihood.links[0] if likelihood.links else "mc"
    if not isinstance(link, str):
        return link
    chosen = lookup("link", link, links.REGISTRY)()
    if likelihood.links and link not in likelihood.links:
        choose(f"link for {type(likelihood).__name__}", link, likelihood.links)
    return chosen


def _require_use_of_link(link: str, likelihood: Likelihood, via: str) -> None:
    lookup("link", link, links.REGISTRY)
    why = f"via={via!r} averages over networks" if via != "linearised" else ""
    if not likelihood.links:
        why = f"the predictive of {type(likelihood).__name__} is known in closed form"
    if why:
        raise ValueError(
            f"link={link!r} integrates probabilities over the linearised network, and {why}: leave it out."
        )


def _linearised(
    q: Gaussian, x: Inputs, link: Link, noise: bool, joint: str | None, memory: str | int | None
) -> Distribution:
    likelihood = q.likelihood
    if joint == "batch":
        rows = count(x) * q.fit.plan.outputs
        way_out = "Predict fewer inputs together, or draw functions with osc.sample_functions."
        require_room(q, rows * (rows + q.mean.numel()), "the rows and covariances of all inputs together", way_out)
        return likelihood.joint(*joint_covariance(q, x), noise=noise)
    if joint == "outputs":
        outputs = q.fit.plan.outputs
        require_room(
            q,
            2 * count(x) * outputs**2,  # the distribution holds their factors too
            f"the covariances of {outputs:,} outputs for each of {count(x)} inputs, and their factors,",
            "Leave joint out (the variance of each output), predict fewer inputs at once, or draw functions with "
            "osc.sample_functions.",
        )
        f, covariance = moments(q, x, all_outputs, memory)
        return likelihood.joint(f.reshape(len(f), -1), covariance.squeeze(1), noise=noise)
    if likelihood.needs_covariance(link):
        return likelihood.marginal(*interacting_moments(q, x, memory), link, noise=noise)
    f, variance = moments(q, x, single_outputs, memory)
    return likelihood.marginal(f, variance.reshape(f.shape), link, noise=noise)


def interacting_moments(q: Gaussian, x: Inputs, memory: str | int | None = None) -> tuple[Tensor, Tensor]:
    """The mean of the function, and the covariances (N, T, E, E) of the outputs that interact in the likelihood.

    Args:
        q: The posterior.
        x: Inputs.
        memory: Bytes that the pass may take, or a text such as "2GB"; None for the default.

    Raises:
        ValueError: the covariances do not fit into the free memory.
    """
    size = count(x)
    # if all outputs interacted; where that is too much, those that do are counted
    needed = size * q.fit.plan.outputs**2 * q.mean.itemsize
    if needed > NEGLIGIBLE and needed > free(q.network.device):
        with torch.no_grad():
            first = q.network(moved(take(x, slice(1)), q.network.device))
        events = q.likelihood.events(first)
        require_room(
            q,
            size * first.numel() * events,
            f"the {events:,} x {events:,} covariances of interacting outputs at {first.numel() // events:,} "
            f"positions of {size} inputs",
            f"Integrate over draws of the function instead (link={FUNCTIONS!r}), use a link that needs variances "
            "alone (link='probit'), or predict fewer inputs at once.",
        )
    return moments(q, x, partial(interacting_outputs, q.likelihood), memory)


def _require_room_for_mixture(q: Posterior, x: Inputs, samples: int) -> None:
    """Raise ValueError if a predictive that keeps all draws of the function does not fit into the memory."""
    if type(q.likelihood).mixture_of_parts is Likelihood.mixture_of_parts:  # others add them up as they come
        require_room_for_draws(q, x, samples, 5, "Take fewer of them (samples=…), or predict fewer inputs at once.")


def require_room_for_draws(q: Posterior, x: Inputs, samples: int, copies: int, way_out: str) -> None:
    """Raise ValueError if the function values of all draws together do not fit into the memory.

    Args:
        q: The posterior.
        x: Inputs.
        samples: Number of draws; an ensemble has one for each member.
        copies: Tensors of all function values that exist at the same time.
        way_out: A sentence on what to do instead.

    Raises:
        ValueError: the message names the bytes that are needed and those that are free.
    """
    with torch.no_grad():
        first = q.network(moved(take(x, slice(1)), q.network.device))
    samples = len(q.members) if isinstance(q, Ensemble) else samples
    require(
        copies * samples * count(x) * first.numel() * first.itemsize,
        q.network.device,
        f"{samples:,} draws of the {first.numel():,} outputs of {count(x):,} inputs",
        way_out,
    )
