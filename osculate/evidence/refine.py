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

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from osculate.batches import Data
from osculate.checks import require_whole
from osculate.curvature.columns import GGN, MANY as MANY_COLUMNS, Fisher
from osculate.evidence.laplace import effective_parameters
from osculate.evidence.linear import summed_statistics
from osculate.evidence.maximise import maximise_evidence
from osculate.evidence.mode import QuasiNewton
from osculate.evidence.variational import (
    DRAWS,
    EXACT,
    UNASKED,
    Held,
    PosteriorAtData,
    Refinement,
    curvature_of,
    network_outputs,
    require_same_data,
)
from osculate.memory import sparing
from osculate.posteriors import Gaussian, as_gaussian
from osculate.posteriors.resumable import Checkpoint, Part, Sums, dependencies, opened, with_state
from osculate.progress import track
from osculate.registry import choose
from osculate.schema import flag, require_header, whole
from osculate.structures import Curvature
from osculate.tensorfiles import digest

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
    checkpoint: str | os.PathLike | None = None,
    every: str | int = "5min",
    progress: bool = False,
) -> Gaussian:
    r"""The Gaussian variational posterior of the linear model around the network: its mean and its covariance.

    .. math:: L(m, S) = \tfrac1T \sum_n \operatorname{E}_{N(\mu_n, V_n)}[\log p(y_n \mid h)]
              - \operatorname{KL}(N(m, S) \,\|\, p), \qquad
              S^{-1} = \tfrac1T \sum_n J_n^\top \operatorname{E}[\Lambda_n] J_n + \operatorname{diag}(\delta)

    A Laplace approximation takes the curvature at the mode. That of a classifier which fits its training data is
    nearly zero there, so that predictions can be far too uncertain, most of all for images. Here the curvature is
    averaged over the function values that the posterior holds possible, and the mean is that of the linear model,
    which predictions are made with. [opper2009]

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
        checkpoint: A file for what the refinement has reached, from which it goes on after an interruption: the same
            call again, with the same posterior and data, ends with the same bits. It is removed at the end. It holds
            the mean and the curvature after the last step, and of the step under way the function values of the data
            with roots of their covariances (N C² numbers), the search for the mean (about twenty vectors of P numbers)
            and the sums of the curvature. Several processes write none.
        every: Interval at which it is written: a time such as "30s" or "5min", or a number of pieces of work (batches
            that were passed, steps of the search).
        progress: Show a progress bar.

    Returns:
        A new posterior. ``osc.log_evidence`` of it is its bound.

    Raises:
        TypeError: ``q`` is no Gaussian posterior.
        ValueError: no data, or other data than those of the fit; a likelihood that is not log-concave in f; a bound
            that is not finite. The checkpoint is of another posterior, of other data or settings, damaged or in use, or
            asked for with a structure that has no sums.

    Cost: for each step a pass for the variances of the function values, one for the curvature, a few with one product
    J v and one Jᵀ u each, and one for the new variances of some of the data, by which the step is judged; of all data
    where these leave a doubt of more than one in a thousand, or where another step follows. The data are held. What a
    resumed refinement repeats is a choice of the prior by the evidence, one forward pass that records J again, the
    judgement that was under way, and what was done since the last write; and it reads the data, for their digest.

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
    if checkpoint is not None and not q.likelihood.quadratic:
        q.structure.structure.require_sums("refine a posterior of")
    if not q.processes.alone:  # interrupted at different steps, processes could not go on together: they refine anew
        checkpoint = None
    with torch.no_grad(), opened(checkpoint, every) as file, sparing(q.memory):
        held = Held.of(q, data)
        how = {"trust": trust, "noise": noise, "steps": steps, "tolerance": tolerance}
        progressed = Progress(q, file, {} if file.path is None else _about(q, held, how))
        if q.likelihood.quadratic:  # the curvature is the same at all function values: the mean alone moves
            mean = _linear_mode(q, held, trust, tolerance, noise, file)
            return held.known_to(mean).noted(refinement=refinement)
        refined = progressed.q
        if not progressed.done:
            here = PosteriorAtData.of(refined, held, file, f"values-{progressed.step}")
            require_same_data(q, here.smoothed.outputs, held.targets)
        for step in track(range(progressed.step + 1, progressed.last(steps) + 1), "refinement", steps, progress):
            refined, last = _with_covariance(_with_mean(here, trust, tolerance, file), file), step == steps
            if not last:
                there = PosteriorAtData.of(refined, held, file, f"values-{step}")
                rise = float(there.bound - here.bound)
                refined, last = refined if rise >= 0 else here.q, rise < ENOUGH
                here = there
            progressed.reached(refined, step, last)
            if last:
                break
    if torch.equal(refined.mean, q.mean) and refined.structure is q.structure:
        own = q.structure.structure.name
        warnings.warn(
            f"the posterior is not refined: with structure {own!r} no step raises the bound. "
            f"Fit with structure={'full' if own == 'kron' else 'kron'!r}, or tune on held-out data with osc.tune.",
            stacklevel=2,
        )
    return held.known_to(refined).noted(refinement=refinement)


def calibrated(
    q: Gaussian,
    noise: bool = True,
    progress: bool = False,
    checkpoint: str | os.PathLike | None = None,
    every: str | int = "5min",
) -> Gaussian:
    """The refinement that ``osc.laplace`` makes by default, with the constants that a study on other data has chosen.

    For class probabilities each datum counts as ten (a temperature of 0.1), and the mean moves little; for noise of
    constant variance the mean moves to the mode of the linear model, where the noise is estimated.

    Args:
        q: A posterior of a likelihood that saturates or is quadratic.
        noise: Estimate the noise scale, if there is one.
        progress: Show a progress bar.
        checkpoint: A file for what the refinement has reached (see :func:`refine`).
        every: Interval at which it is written.
    """
    how: dict[str, Any] = {"checkpoint": checkpoint, "every": every, "progress": progress}
    if q.likelihood.quadratic:
        return refine(q, trust=None, noise=noise, **how)
    cold = q.replace(temperature=TEMPERATURE * q.temperature)
    return refine(cold, trust=TRUST, **how).noted(refinement=Refinement(calibrated, q.temperature))


@dataclass
class Progress:
    """The steps of a refinement that are done, as a part of a checkpoint.

    Attributes:
        q: The posterior after these steps.
        file: The checkpoint.
        about: Texts by name on which the refinement depends.
        step: Number of steps that are done.
        done: True if no other step follows.
    """

    q: Gaussian
    file: Checkpoint
    about: Mapping[str, str]
    step: int = 0
    done: bool = False

    def __post_init__(self) -> None:
        self._before = self.q
        found = self.file.part("refinement", self.about)
        if found is None:
            self.file.keep("refinement", partial(Part, about=self.about), piece=False)
            return
        if not found.facts:  # no step is done
            return
        require_header(self.file.path, found.facts, {"step": whole(), "done": flag})
        self.step, self.done = found.facts["step"], found.facts["done"]
        state = {name.removeprefix("curvature."): each for name, each in found.tensors.items() if name != "offset"}
        q = self.q.replace(offset=found.tensors["offset"].to(self.q.mean.device))
        if state:
            curvature = with_state(self.file, q.structure, state)
            q = q.replace(fit=replace(q.fit, curvature=curvature, likelihood=q.likelihood))
        self.q = q

    def last(self, steps: int) -> int:
        """The last step that may be left, of this number at most."""
        return self.step if self.done else steps

    def reached(self, q: Gaussian, step: int, done: bool) -> None:
        """Note the posterior after a step, and forget what led to it."""
        tensors: dict[str, Tensor] = {} if q.offset is None else {"offset": q.offset}
        if q.structure is not self._before.structure:
            tensors |= {f"curvature.{name}": each for name, each in q.structure.tensors().items()}
        facts = {"step": step, "done": done}
        self.file.forget(f"values-{step - 1}", "mean", "sums", "judged")
        self.file.keep("refinement", lambda: Part(tensors, facts, self.about))


def _about(q: Gaussian, held: Held, settings: Mapping[str, Any]) -> dict[str, str]:
    """Texts on which a refinement depends."""
    state = q.structure.tensors() if q.structure.structure.resumes else {}
    state = {name: each.cpu() for name, each in {**state, "mean": q.mean}.items()}
    depends = {"prior": q.prior, "likelihood": q.likelihood, "temperature": q.temperature, **settings}
    return {
        "data": f"{len(held.targets):,} data, {held.digest()[:16]}",
        **dependencies(q.network, q.fit.plan, structure=q.structure.structure, **depends),
        "posterior": digest({}, state)[:16],
    }


def _linear_mode(
    q: Gaussian, held: Held, trust: float | None, tolerance: float, noise: bool, file: Checkpoint
) -> Gaussian:
    """The posterior with the mean of the linear model, and with its noise by N C = β SSE + γ if that is asked for."""
    target, offset = q, q.mean - q.network.mean
    search = SOLVER.search(target, held.batches, q.mean)
    start = search.outputs
    require_same_data(q, start if q.offset is None else network_outputs(q, held), held.targets)
    found = file.part("mean")
    factors = [] if found is None else [found.tensors[f"factor.{n}"].to(q.mean.device) for n in range(found.facts["n"])]
    for factor in factors:
        target = target.replace(likelihood=target.likelihood.times(factor))
    for _ in range(len(factors), ROUNDS if noise else 1):
        share = _towards_mode(search, target, trust, tolerance, file, factors, found)
        found = None
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
        factors = [*factors, factor]
        target = target.replace(likelihood=target.likelihood.times(factor))
    if noise:
        _warn_of_noise(mean, held)
    return mean


def _warn_of_noise(q: Gaussian, held: Held) -> None:
    """Warn of a noise scale above the spread of the targets: the evidence takes everything for noise."""
    spread, scale = held.targets.double().std(0), torch.as_tensor(getattr(q.likelihood, "scale", 0.0)).double()
    if len(held.targets) > 1 and bool(((scale.to(spread) > spread) & (spread > 0)).any()):
        structure = q.structure.structure.name
        way_out = "structure='full'" if structure != "full" else "a fixed prior (prior=1.0)"
        warnings.warn(
            f"the evidence puts the noise scale ({float(scale.max()):.3g}) above the standard deviation of the targets "
            f"({float(spread.min()):.3g}): it takes them for noise, and intervals are too wide. With few data for each "
            f"parameter the approximation {structure!r} is not up to it: use {way_out}, or held-out data "
            "(validation=…).",
            stacklevel=5,
        )


def _towards_mode(
    search: Any,
    target: Gaussian,
    trust: float | None,
    tolerance: float,
    file: Checkpoint,
    factors: Sequence[Tensor] = (),
    found: Part | None = None,
) -> float:
    """Bring a search to the mode of the linear model, and return the share of the way there that is trusted.

    Args:
        search: The search, from the mean of ``target``.
        target: The posterior whose mode it is, with its likelihood.
        trust: The number c of the trust region.
        tolerance: Distance to the maximum, relative to that at the start.
        file: A checkpoint for the state of the search.
        factors: Factors of the noise scale by which ``target`` differs from the posterior that is refined.
        found: The state in the file, if there is one.
    """
    noises = {f"factor.{number}": factor for number, factor in enumerate(factors)}
    gaps: list[float] = []
    if found is not None:
        gaps = found.tensors["gaps"].tolist()
        search.restore({name.removeprefix("search."): each for name, each in found.tensors.items()}, target)

    def reached() -> Part:
        state = {f"search.{name}": each for name, each in search.tensors().items()}
        return Part({**noises, **state, "gaps": torch.tensor(gaps, dtype=torch.double)}, {"n": len(noises)})

    # Gaps are compared with gaps, and gains with gains: Λ, which measures the gaps, may be far off.
    def arrived() -> bool:
        within = gaps[-1] <= tolerance * gaps[0]
        return within or search.stands(tolerance * max(search.gains, default=0.0), SOLVER.max_steps)

    while not gaps or (len(gaps) < SOLVER.max_steps and not arrived()):
        gaps.append(search.improve(target, tolerance * gaps[0] if gaps else 0.0))
        file.keep("mean", reached)
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


def _with_mean(state: PosteriorAtData, trust: float | None, tolerance: float, file: Checkpoint) -> PosteriorAtData:
    """The mean of largest bound for these variances of the function values, as far as it is trusted."""
    q, shift = state.q, state.smoothed.shift
    smoothed = replace(state.smoothed, shift=torch.zeros_like(shift))
    target = q.replace(likelihood=smoothed)
    search = SOLVER.search(target, state.held.indexed, q.mean)
    start = search.outputs
    share = _towards_mode(search, target, trust, tolerance, file, found=file.part("mean"))
    mean = q.replace(offset=q.mean - q.network.mean + share * (search.theta - q.mean))
    return PosteriorAtData(mean, state.held, replace(smoothed, shift=shift + share * (search.outputs - start)))


def _with_covariance(state: PosteriorAtData, file: Checkpoint) -> Gaussian:
    """The posterior whose curvature is averaged over these function values, or is between that and the one before."""
    q, smoothed = state.q, state.smoothed
    generator = torch.Generator().manual_seed(0)
    passed = q.fit.kind == GGN.name  # as many columns were no question in the fit
    exact = smoothed.spread.shape[2] <= EXACT and (passed or q.fit.plan.outputs <= MANY_COLUMNS)
    sums = None if file.path is None else Sums(file, "sums", {})
    averaged = curvature_of(q, smoothed, UNASKED if exact else Fisher(DRAWS, generator), state.held.indexed, sums)
    judged = file.part("judged")
    for halving in range(0 if judged is None else judged.facts["refused"], HALVINGS):
        curvature = averaged if halving == 0 else _between(q.structure, averaged, 0.5**halving)
        if curvature is None:
            break
        curvature.share(q.processes)
        changed = q.replace(fit=replace(q.fit, curvature=curvature, likelihood=q.likelihood))
        if state.rises(changed):
            return changed
        file.keep("judged", partial(Part, facts={"refused": halving + 1}))
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
