r"""The Gaussian variational posterior of the linear model: its mean, and its averaged curvature.

At a saturated softmax the output Hessian Λ_n is nearly zero, so that a Laplace approximation hardly holds the function
values of data that the network fits well: it predicts its own training data badly. The linear model
h(θ, x) = f(θ̃, x) + J(x)(θ − θ̃), which predictions are made with, has a Gaussian posterior N(m, S) of its own, by its
evidence lower bound

.. math:: L(m, S) = \tfrac1T \sum_n \operatorname{E}_{N(\mu_n, V_n)}[\log p(y_n \mid h)]
          - \operatorname{KL}(N(m, S) \,\|\, p), \qquad \mu_n = f_n + J_n (m - \tilde\theta), \quad
          V_n = J_n S J_n^\top .

Where it is stationary, the curvature is averaged over the function values that the posterior holds possible:

.. math:: S^{-1} = \tfrac1T \sum_n J_n^\top \operatorname{E}[\Lambda_n] J_n + \operatorname{diag}(\delta), \qquad
          \tfrac1T \sum_n J_n^\top \operatorname{E}[\nabla \log p(y_n \mid h)] = \delta m .

So the mean is the mode of the linear model for a smoothed likelihood, and the covariance is that of a fit with it.
[opper2009]
"""

import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from osculate.batches import Data
from osculate.checks import require_whole
from osculate.curvature.columns import GGN, Fisher
from osculate.evidence.laplace import effective_parameters
from osculate.evidence.linear import summed_statistics
from osculate.evidence.maximise import maximise_evidence
from osculate.evidence.mode import QuasiNewton
from osculate.evidence.variational import (
    DRAWS,
    EXACT,
    Held,
    PosteriorAtData,
    Refinement,
    curvature_of,
    network_outputs,
    require_same_data,
)
from osculate.posteriors import Gaussian, as_gaussian
from osculate.progress import track
from osculate.registry import choose
from osculate.structures import Curvature

#: Search for the mean.
SOLVER = QuasiNewton()
#: Halvings of a step of the covariance that would lower the bound.
HALVINGS = 4
#: Tolerances of the search with a trust region and without.
LOOSE, CLOSE = 0.3, 0.01
#: Steps at most where the mean moves without limit, and nats that the bound must rise by for another one.
MANY, ENOUGH = 100, 1e-3
#: Estimates of the noise at most, their relative change at the end, and the smallest share of data that determine it.
ROUNDS, NEAR, LEAST = 8, 0.02, 0.05
#: What ``osc.laplace`` refines with by default: the temperature of class probabilities, and their trust region.
TEMPERATURE, TRUST = 0.1, 0.02


def refine(
    q: Any,
    data: Data | None = None,
    *,
    trust: float | None = 0.25,
    prior: str | None = None,
    noise: bool = False,
    steps: int | None = None,
    tolerance: float | None = None,
    progress: bool = False,
) -> Gaussian:
    r"""The Gaussian variational posterior of the linear model around the network: its mean and its covariance.

    .. math:: L(m, S) = \tfrac1T \sum_n \operatorname{E}_{N(\mu_n, V_n)}[\log p(y_n \mid h)]
              - \operatorname{KL}(N(m, S) \,\|\, p), \qquad
              S^{-1} = \tfrac1T \sum_n J_n^\top \operatorname{E}[\Lambda_n] J_n + \operatorname{diag}(\delta)

    A Laplace approximation takes the curvature at the mode, where that of a network which fits its training data is
    nearly zero: its predictions are far too uncertain. Here the curvature is averaged over the function values that the
    posterior holds possible, and the mean is that of the linear model, which predictions are made with. [opper2009]

    A step solves a convex problem for the mean at the function variances V_n of the posterior before it, and then
    averages the curvature there, in the structure of ``q``. A step that would lower the bound is shortened: the bound
    never falls. Functions are still linearised around the network: ``via="mode"`` is the network itself, and
    ``via="sampled"`` draws networks around its parameters with the new covariance. For a Gaussian likelihood, the
    structures "full" and "dual" and ``trust=None`` the result is the exact posterior of the linear model.

    Args:
        q: A Gaussian posterior, with its prior and noise.
        data: The data that it was fitted to; only needed for a posterior from a file, or one fitted to an iterator.
        trust: The number c in (m − θ̃)ᵀ Λ (m − θ̃) ≤ c γ, with the precision and the effective number of parameters of
            the posterior before the step: the mean moves by at most √c standard deviations, in the root mean square
            over the directions that the data determine. None moves it all the way.
        prior: Prior of the result: None keeps that of ``q`` and its noise, "evidence" first estimates both by the
            evidence, that of the linear model where there is a noise scale.
        noise: Estimate the noise scale of a Gaussian likelihood at the mean, by the evidence of the linear model at the
            precisions of the prior; nothing for other likelihoods.
        steps: Steps at most, while each raises the bound by a thousandth of a nat: by default one, and with
            ``trust=None`` a hundred.
        tolerance: Distance to the maximum at which the search for a mean ends, relative to that at its start; both are
            measured with the posterior precision. By default 0.3, and 0.01 where ``trust`` is None.
        progress: Show a progress bar.

    Returns:
        A new posterior. ``osc.log_evidence`` of it is its bound.

    Raises:
        TypeError: ``q`` is no Gaussian posterior.
        ValueError: no data, or other data than those of the fit; a likelihood that is not log-concave in f; a bound
            that is not finite.

    Cost: for each step a pass for the variances of the function values, one for the curvature, a few with one product
    J v and one Jᵀ u each, and one for the new variances of some of the data, by which the step is judged; of all data
    where these leave a doubt of more than one in a thousand, or where another step follows. The data are held.

    >>> import osculate as osc
    >>> X, Y = torch.randn(60, 2), torch.randint(3, (60,))
    >>> q = osc.laplace(torch.nn.Linear(2, 3), osc.likelihoods.Categorical(), (X, Y))
    >>> bool(osc.log_evidence(osc.refine(q)) >= osc.evidence.linear_elbo(q))
    True
    """
    q = as_gaussian(q, "refine")
    _require_log_concave(q)
    if trust is not None and not trust > 0:
        raise ValueError(f"trust must be positive, or None for no limit, got {trust!r}.")
    tolerance = (CLOSE if trust is None else LOOSE) if tolerance is None else tolerance
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must be between 0 and 1, got {tolerance!r}.")
    steps = (MANY if trust is None else 1) if steps is None else steps
    require_whole("steps", steps)
    if prior is not None:
        choose("prior of a refined posterior", prior, ("evidence",))
        q = maximise_evidence(q, mode="linear" if q.likelihood.has_noise else "network", data=data)
    again = partial(refine, data=data, trust=trust, noise=noise, steps=steps, tolerance=tolerance)
    refinement = Refinement(again, q.temperature)
    with torch.no_grad():
        held = Held.of(q, data)
        if q.likelihood.quadratic:  # the curvature is the same at all function values: the mean alone moves
            return held.known_to(_linear_mode(q, held, trust, tolerance, noise)).noted(refinement=refinement)
        here = PosteriorAtData.of(q, held)
        require_same_data(q, here.smoothed.outputs, held.targets)
        for step in track(range(1, steps + 1), "refinement", steps, progress):
            refined = _with_covariance(_with_mean(here, trust, tolerance))
            if step < steps:
                there = PosteriorAtData.of(refined, held)
                rise = float(there.bound - here.bound)
                refined = refined if rise >= 0 else here.q
                if rise < ENOUGH:
                    break
                here = there
    if torch.equal(refined.mean, q.mean) and refined.structure is q.structure:
        warnings.warn(
            f"the posterior is not refined: with structure {q.structure.structure.name!r} no step raises the bound. "
            "Fit with structure='kron', or tune on held-out data with osc.tune.",
            stacklevel=2,
        )
    return held.known_to(refined).noted(refinement=refinement)


def calibrated(q: Gaussian, noise: bool = True, progress: bool = False) -> Gaussian:
    """The refinement that ``osc.laplace`` makes by default, with the constants that a study on other data has chosen.

    For class probabilities each datum counts as ten (a temperature of 0.1), and the mean moves little; for noise of
    constant variance the mean moves to the mode of the linear model, where the noise is estimated.

    Args:
        q: A posterior of a likelihood that saturates or is quadratic.
        noise: Estimate the noise scale, if there is one.
        progress: Show a progress bar.
    """
    if q.likelihood.quadratic:
        return refine(q, trust=None, noise=noise, progress=progress)
    cold = q.replace(temperature=TEMPERATURE * q.temperature)
    return refine(cold, trust=TRUST, progress=progress).noted(refinement=Refinement(calibrated, q.temperature))


def _linear_mode(q: Gaussian, held: Held, trust: float | None, tolerance: float, noise: bool) -> Gaussian:
    """The posterior with the mean of the linear model, and with its noise by N C = β SSE + γ if that is asked for."""
    target, offset = q, q.mean - q.network.mean
    search = SOLVER.search(target, held.batches, q.mean)
    start = search.outputs
    require_same_data(q, start if q.offset is None else network_outputs(q, held), held.targets)
    for _ in range(ROUNDS if noise else 1):
        share = _towards_mode(search, target, trust, tolerance)
        mean = target.replace(offset=offset + share * (search.theta - q.mean))
        if not noise:
            break
        values = start + share * (search.outputs - start)
        size, errors = target.likelihood.noise_balance(summed_statistics(target, [(values, held.targets)]))
        free = max(float(size) - sum(effective_parameters(target).values()), LEAST * float(size))
        factor = (errors / free).sqrt()
        if not float(factor) > 0:  # the linear model fits every target exactly
            break
        if abs(float(factor) - 1) < NEAR:
            break
        target = target.replace(likelihood=target.likelihood.times(factor))
    if noise:
        _warn_of_noise(mean, held)
    return mean


def _warn_of_noise(q: Gaussian, held: Held) -> None:
    """Warn of a noise scale above the spread of the targets: the evidence takes everything for noise."""
    spread, scale = held.targets.double().std(0), torch.as_tensor(getattr(q.likelihood, "scale", 0.0)).double()
    if len(held.targets) > 1 and bool((scale.to(spread) > spread).any()):
        structure = q.structure.structure.name
        way_out = "structure='full'" if structure != "full" else "a fixed prior (prior=1.0)"
        warnings.warn(
            f"the evidence puts the noise scale ({float(scale.max()):.3g}) above the standard deviation of the targets "
            f"({float(spread.min()):.3g}): it takes them for noise, and intervals are too wide. With few data for each "
            f"parameter the approximation {structure!r} is not up to it: use {way_out}, or held-out data "
            "(validation=…).",
            stacklevel=5,
        )


def _towards_mode(search: Any, target: Gaussian, trust: float | None, tolerance: float) -> float:
    """Bring a search to the mode of the linear model, and return the share of the way there that is trusted.

    Args:
        search: The search, from the mean of ``target``.
        target: The posterior whose mode it is, with its likelihood.
        trust: The number c of the trust region.
        tolerance: Distance to the maximum, relative to that at the start.
    """
    gaps = [search.improve(target)]
    while gaps[-1] > tolerance * gaps[0] and len(gaps) < SOLVER.max_steps:
        gaps.append(search.improve(target, tolerance * gaps[0]))
    if trust is None:
        return 1.0
    allowed = trust * sum(effective_parameters(target).values())
    way, before = search.theta - target.mean, target.mean - target.network.mean
    scaled = target.precision.multiply(way)
    square, across = float(way @ scaled), float(before @ scaled)
    room = allowed - (0.0 if target.offset is None else float(before @ target.precision.multiply(before)))
    if room <= 0 or square <= 0:  # the mean is at the boundary already, or does not move
        return 0.0
    return min(1.0, ((across**2 + square * room) ** 0.5 - across) / square)


def _with_mean(state: PosteriorAtData, trust: float | None, tolerance: float) -> PosteriorAtData:
    """The mean of largest bound for these variances of the function values, as far as it is trusted."""
    q, shift = state.q, state.smoothed.shift
    smoothed = replace(state.smoothed, shift=torch.zeros_like(shift))
    target = q.replace(likelihood=smoothed)
    search = SOLVER.search(target, state.held.indexed, q.mean)
    start = search.outputs
    share = _towards_mode(search, target, trust, tolerance)
    mean = q.replace(offset=q.mean - q.network.mean + share * (search.theta - q.mean))
    return PosteriorAtData(mean, state.held, replace(smoothed, shift=shift + share * (search.outputs - start)))


def _with_covariance(state: PosteriorAtData) -> Gaussian:
    """The posterior whose curvature is averaged over these function values, or is between that and the one before."""
    q, smoothed = state.q, state.smoothed
    kind = GGN() if smoothed.spread.shape[2] <= EXACT else Fisher(DRAWS, torch.Generator().manual_seed(0))
    averaged = curvature_of(q, smoothed, kind, state.held.indexed)
    for halving in range(HALVINGS):
        curvature = averaged if halving == 0 else _between(q.structure, averaged, 0.5**halving)
        if curvature is None:
            break
        changed = q.replace(fit=replace(q.fit, curvature=curvature, likelihood=q.likelihood))
        if state.rises(changed):
            return changed
    return q


def _between(one: Curvature, other: Curvature, share: float) -> Curvature | None:
    """The matrix that is this share of the way from one to another; None where states are no sums."""
    mine, theirs = one.tensors(), other.tensors()
    if one.structure.passes > 1 or not mine or any(theirs[name].shape != value.shape for name, value in mine.items()):
        return None
    return one.with_tensors({name: value + share * (theirs[name] - value) for name, value in mine.items()})


def _require_log_concave(q: Gaussian) -> None:
    if not q.likelihood.log_concave:
        raise ValueError(
            f"{type(q.likelihood).__name__} is not log-concave in the outputs: the mean of the linear model is not "
            "unique, and refinement has no safe step. Tune the posterior on held-out data with osc.tune."
        )
