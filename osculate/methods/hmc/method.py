"""Hamiltonian Monte Carlo: draws of all weights from the exact posterior, for small networks."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.batches import Data
from osculate.checks import require_whole
from osculate.distributed import Group
from osculate.inputs import Inputs, floating, moved, take
from osculate.likelihoods import Likelihood
from osculate.methods._base import FullBatch, Option, PriorLike, counter, require_parts, set_parameters
from osculate.methods.hmc.potential import NegativeLogJoint
from osculate.methods.hmc.sampler import NUTS, ChainState, Metric, StepSize, first_step_size, windows
from osculate.methods.map import MAP, negative_log_joint
from osculate.parameters import Network, require_deterministic_layers, trainable
from osculate.posteriors import Chains
from osculate.posteriors.chains import FEWEST
from osculate.tensorfiles import fill

#: Largest number of parameters of a network.
LIMIT = 20_000
#: Default number of transitions before the first draw; in short runs a third of them.
WARMUP = 500
#: Halvings of a draw of the prior until its density is finite.
HALVINGS = 30
#: Number of training inputs at which the chains are compared, and the R-hat above which there is a warning.
LOOKED_AT, MIXED = 64, 1.05


class HMC(FullBatch):
    r"""Draws θ ~ p(θ|D) by the no-U-turn sampler, several chains side by side.

    .. math:: U(\theta) = -\sum_n \log p(y_n \mid f_n) - \log p(\theta)

    Each chain starts at a draw of the prior, halved until its density is finite. In ``osc.train(method, data,
    epochs=1500)`` one epoch is one transition of every chain, warm-up included: with ``warmup=500`` it leaves 1000
    draws of each chain. Warm-up sets one step size and one diagonal metric for all chains, the first by dual averaging,
    the second in windows of growing length, as Stan does. The same run resumed with more epochs adds draws.
    [neal2011; hoffman2014; betancourt2017]

    All computations are in double precision, whatever the type of the network, with one call of the network for all
    chains (``torch.func.vmap``). The network itself is not changed. The result holds all draws, and gives their R-hat
    and effective sample size at any inputs.

    Args:
        model: Network f_θ of at most 20,000 trained parameters.
        likelihood: p(y|f).
        prior: p(θ): the precision of an isotropic Gaussian, or an object of ``osc.priors``.
        chains: Number of chains K; more of them cost little on a small network.
        warmup: Number of transitions of each chain before its first draw.
        acceptance: Target of the mean acceptance probability, between 0 and 1; a larger one means smaller steps and
            fewer divergences.
        max_depth: Largest depth of a trajectory, which has at most 2**max_depth − 1 leapfrog steps. If
            ``leapfrog_steps`` in the history is mostly at this limit, a smaller depth may give more effective draws in
            the same time.

    Raises:
        TypeError: the model is not a module, or the prior is neither a number nor an object of ``osc.priors``.
        ValueError: an argument is out of range, no parameter is trainable, there are more than 20,000, or dropout or
            batch normalisation is in training mode.

    Warns: At the end, if outputs at training inputs have an R-hat above 1.05, or trajectories diverged after warm-up.

    Cost: a transition takes up to 2**max_depth − 1 passes over all data, forward and backward, for all chains together.

    >>> x = torch.linspace(-1, 1, 20)[:, None]
    >>> method = osc.methods.HMC(nn.Linear(1, 1), osc.likelihoods.Gaussian(0.1), prior=1.0, warmup=50)
    >>> done = osc.train(method, (x, 2 * x), epochs=100, progress=False)
    >>> done.posterior
    Chains(chains=4, draws=50, P=2, likelihood=Gaussian)
    >>> abs(done.posterior.mean[0] - 2) < 0.1
    tensor(True)
    """

    name = "hmc"
    fixed_settings = ("likelihood", "prior", "chains", "warmup", "acceptance", "max_depth", "seed")
    recommended = {"epochs": 1500}
    options = {
        "warmup": Option(
            int,
            f"transitions of each chain before its first draw; by default a third of the epochs, at most {WARMUP}. A "
            "resumed run keeps its warm-up, and more epochs add draws",
        )
    }
    network_name = "one draw"
    result_is_mode = False
    hidden_units = (10,)  # thousands of passes over the data

    in_parts, alone = True, ""

    converged = False
    count: Tensor
    position: Tensor
    potential: Tensor
    gradient: Tensor
    draws: Tensor
    divergences: Tensor

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        prior: PriorLike = 1.0,
        chains: int = 4,
        warmup: int = WARMUP,
        acceptance: float = 0.8,
        max_depth: int = 10,
    ) -> None:
        super().__init__()
        prior = MAP(model, likelihood, prior).prior  # checks the arguments
        for setting, number, least in (("chains", chains, 1), ("warmup", warmup, 0), ("max_depth", max_depth, 1)):
            require_whole(setting, number, least)
        if not 0 < acceptance < 1:
            raise ValueError(
                f"acceptance is a mean probability and must lie between 0 and 1, got {acceptance!r}. Try 0.8 or 0.95."
            )
        require_deterministic_layers(model)
        network = Network(model, trainable(model))
        if network.space.size > LIMIT:
            raise ValueError(
                f"HMC takes thousands of steps in all {network.space.size:,} trained parameters, and accepts "
                f"{LIMIT:,}. Use osc.laplace, methods.SWAG or methods.DeepEnsemble, or freeze layers with "
                "requires_grad=False."
            )
        self.model, self.likelihood, self.prior = model, likelihood, prior.bind(network.space)
        self.warmup, self.acceptance, self.max_depth = warmup, acceptance, max_depth
        self.seed, self._process = 0, 0
        self._store_chains(chains)
        self._joint: NegativeLogJoint | None = None

    def _store_chains(self, chains: int) -> None:
        """Make the state of this number of chains."""
        self.chains, network = chains, Network(self.model, trainable(self.model))
        variance = 1 / self.prior.vector(network.space).detach().double()
        self.step_size, self.metric = StepSize(self.acceptance), Metric(variance, chains)
        self.store(  # for a resumed run, in addition to the state of step size and metric
            count=counter(),
            position=variance.new_zeros(chains, len(variance)),
            potential=variance.new_zeros(chains),
            gradient=variance.new_zeros(chains, len(variance)),
            draws=torch.zeros(0, chains, len(variance), dtype=network.state_dtype),
            divergences=counter(),  # after warm-up
        )

    def take_part(self, processes: Group) -> None:
        """Run some of the chains only, with step size and metric of their own."""
        require_parts(self.chains, "chains", processes)
        rows = processes.share(self.chains)
        self._process = processes.rank
        self._store_chains(rows.stop - rows.start)

    def exchange(self, processes: Group) -> None:
        """Join the chains of all processes."""
        for name, axis in (("position", 0), ("potential", 0), ("gradient", 0), ("draws", 1)):
            own = self.get_buffer(name)
            own = own[: self.kept] if axis else own
            self.store(**{name: processes.joined(own.movedim(axis, 0)).movedim(0, axis).contiguous()})
        self.divergences.fill_(sum(processes.gather(int(self.divergences))))
        self.chains = len(self.position)

    @classmethod
    def defaults(cls, epochs: int, real_valued: bool) -> dict[str, Any]:
        """A third of the epochs as warm-up."""
        return {"warmup": min(WARMUP, epochs // 3)}

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """Negative log joint per datum at the network's present weights, in nats, as for ``MAP``."""
        return negative_log_joint(self.model, self.likelihood, self.prior, x, y, num_data)

    def log_prob(self, x: Inputs, y: Tensor) -> Float[Tensor, " B"]:
        """log p(y|x) of each held-out datum under the mixture of the chains' present states."""
        each = self._required.log_likelihoods(self.position, x, y)
        return each.logsumexp(0) - np.log(self.chains)

    def begin(self, data: Data, epochs: int, seed: int) -> int:
        """Store the data and, in a new run, draw the initial states of the chains.

        Args:
            data: Training data; read once and held in double precision.
            epochs: Total number of transitions of each chain.
            seed: Seed of all draws.

        Returns:
            N.

        Raises:
            ValueError: the data are empty or not finite, the targets do not fit the likelihood, the network does not
                support ``torch.func.vmap``, or there are too few epochs for one draw.
        """
        if epochs <= self.warmup:
            raise ValueError(
                f"epochs={epochs} leaves no draw: the first {self.warmup} transitions of each chain are warm-up. Train "
                f"for more epochs, for example {self.warmup + 1000}, or choose a smaller warmup."
            )
        self.seed = seed
        network = Network(self.model, trainable(self.model)).to(self.position.device, torch.double)
        self._joint = NegativeLogJoint(network, self.likelihood, self.prior, data, self.chains)
        missing = max(epochs - self.warmup - len(self.draws), 0)
        self.draws = torch.cat([self.draws, self.draws.new_zeros(missing, *self.draws.shape[1:])])
        if int(self.count) == 0:
            self._start()
        return self._joint.num_data

    @property
    def _required(self) -> NegativeLogJoint:
        if self._joint is None:
            raise RuntimeError("HMC has not seen data yet: use osc.train(method, data, epochs=1500).")
        return self._joint

    def _start(self) -> None:
        """Set the chains to draws of the prior, and find a step size there."""
        generator = self._generator()
        noise = torch.randn(self.position.shape, generator=generator, dtype=torch.double)
        position = noise.to(self.position.device) * self.metric.start.sqrt()
        centre = torch.zeros_like(position[0]) if self.prior.mean is None else self.prior.mean.to(position)
        position = centre + position
        for _ in range(HALVINGS):
            potential, gradient = self._required(position)
            finite = potential.isfinite() & gradient.isfinite().all(1)
            if bool(finite.all()):
                break
            position = torch.where(finite[:, None], position, centre + (position - centre) / 2)
        else:
            raise FloatingPointError(
                f"the log joint is not finite at draws of the prior {self.prior!r}, even if they are scaled down: "
                "standardise inputs and targets, or look for an overflow in the network."
            )
        self._set_state(ChainState(position, potential, gradient))
        self._find_step_size(1.0, generator)

    def _generator(self) -> torch.Generator:
        """The generator of the next transition, determined by the seed and the number of the transition."""
        own = (self._process,) if self._process else ()
        words = np.random.SeedSequence([self.seed, int(self.count), *own]).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(words[0] >> 1))

    @property
    def _state(self) -> ChainState:
        return ChainState(self.position, self.potential, self.gradient)

    def _set_state(self, state: ChainState) -> None:
        self.position.copy_(state.position)
        self.potential.copy_(state.potential)
        self.gradient.copy_(state.gradient)

    def _nuts(self, step_size: float, generator: torch.Generator) -> NUTS:
        return NUTS(self._required, step_size, self.metric.inverse_mass, generator, self.max_depth)

    def _find_step_size(self, guess: float, generator: torch.Generator) -> None:
        self.step_size.restart(first_step_size(self._nuts(guess, generator), self._state))

    def step(self) -> dict[str, int | float]:
        """One transition of every chain.

        Returns:
            A row of the history: ``train_loss`` (negative log joint per datum, the mean over the chains, in nats),
            ``acceptance`` (mean), ``step_size``, ``leapfrog_steps`` (of the longest trajectory, which sets the time),
            ``divergences`` (number of chains that diverged) and ``draws`` (so far, of each chain).
        """
        generator = self._generator()
        warming = int(self.count) < self.warmup
        step_size = self.step_size.now if warming else self.step_size.final
        done = self._nuts(step_size, generator).draw(self._state)
        divergences, accepted = int(done.divergent.sum()), float(done.acceptance.mean())
        self._set_state(done.state)
        self.count += 1
        if warming:
            ends, step = windows(self.warmup), int(self.count)
            self.step_size.update(accepted)
            if ends and ends[0] < step <= ends[-1]:
                self.metric.collect(self.position)
            if step in ends[1:]:
                self.metric.close_window()
                self._find_step_size(self.step_size.now, generator)
        else:
            self.divergences += divergences
            self.draws[self.kept - 1] = self.position
        return {
            "train_loss": float(done.state.potential.mean()) / self._required.num_data,
            "acceptance": accepted,
            "step_size": step_size,
            "leapfrog_steps": int(done.leapfrogs.max()),
            "divergences": divergences,
            "draws": self.kept,
        }

    @property
    def kept(self) -> int:
        """S, the draws of each chain so far."""
        return max(int(self.count) - self.warmup, 0)

    def checkpoint(self) -> dict[str, Tensor]:
        """The state, with the draws so far and without preallocated memory."""
        return {**self.state_dict(), "draws": self.draws[: self.kept]}

    def restore(self, tensors: Mapping[str, Tensor], path: Any) -> None:
        """Restore the state of a checkpoint.

        Raises:
            ValueError: the checkpoint is of a different network or number of chains.
        """
        chains = len(tensors.get("position", self.position))
        if chains != self.chains:
            raise ValueError(
                f"{str(path)!r} has chains={chains}, but this run has chains={self.chains}: pass chains={chains}."
            )
        self.draws = self.draws.new_zeros(len(tensors.get("draws", ())), *self.draws.shape[1:])
        fill(self, tensors, path)

    def result(self) -> Chains:
        """The draws so far, with a warning if the chains have not mixed or trajectories have diverged.

        Its ``model`` is the network at the last draw of the first chain.

        Raises:
            RuntimeError: warm-up has not ended.
        """
        if self.kept == 0:
            raise RuntimeError(
                f"HMC has no draw yet: it has made {int(self.count)} of {self.warmup} transitions of warm-up. Train "
                "for more epochs."
            )
        network = Network(self.model, trainable(self.model))
        network.module.eval()
        thetas = self.draws[: self.kept].transpose(0, 1).contiguous()
        set_parameters(network.module, network.space, thetas[0, -1])
        q, problem = Chains(network, self.likelihood, thetas), ""
        if self.kept >= FEWEST:
            few = moved(floating(take(self._required.inputs, slice(LOOKED_AT)), network.dtype), network.device)
            worst = float(q.r_hat(few).max())
            if worst > MIXED:
                problem = (
                    f"the chains do not agree about the function: R-hat of an output is {worst:.2f}, above {MIXED}. "
                )
        if divergences := int(self.divergences):
            problem += f"{divergences} of {int(self.count - self.warmup) * self.chains} trajectories diverged. "
        if problem:
            warnings.warn(
                f"{problem}Train for more epochs with a longer warmup (now {self.warmup}); against divergences raise "
                f"acceptance (now {self.acceptance:g}), and standardise inputs and targets.",
                stacklevel=3,
            )
        return q
