"""A Laplace approximation from the second moment in the state of the optimiser."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from osculate.batches import Data, Fixed, as_batches, is_pair
from osculate.checks import require_positive
from osculate.distributed import ALONE, group
from osculate.inputs import Inputs, count, take
from osculate.likelihoods import Gaussian as GaussianLikelihood, Likelihood
from osculate.methods._base import TEMPERATURE, PriorLike, counter
from osculate.methods._running import constant_diagonal, gaussian_with_curvature
from osculate.methods.laplace import laplace_in_training
from osculate.methods.map import MAP
from osculate.methods.second_moments import (
    BatchGradients,
    Sampling,
    SecondMoments,
    chosen_prior,
    memory_of,
    printed_prior,
    require_second_moment,
    unchanged,
    warn_of_noise,
)
from osculate.parameters import Network, undisturbed
from osculate.posteriors import Gaussian
from osculate.priors import Prior
from osculate.registry import choose

#: Scalings of the second moment.
SCALINGS = ("corrected", "paper")
#: Sources of the labels in a refresh.
LABELS = ("data", "drawn")
#: The loss ``torch.nn.functional.mse_loss``, whose gradient is not that of the NLL.
SQUARED_ERROR = "mse"


class L2M(MAP):
    r"""A diagonal Laplace approximation from the state of Adam or a similar optimiser. [perone2021]

    .. math:: \Lambda = c^2 F + \operatorname{diag}(\delta), \qquad
              F = N M \frac{N - 1}{N - M} \max(\hat v - \bar g^2, 0) + N \bar g^2

    v̂ is the bias-corrected average squared gradient of batches of M data; ḡ is the mean gradient, which at a mode
    balances a decoupled weight decay: −wd (√v̂ + ε) θ with AdamW, else zero. The factor with N and M corrects for
    batches drawn without replacement; it is one with replacement. c is the factor from the loss to the NLL. F is the
    empirical Fisher information, with the labels of the data.

    ``scaling="paper"`` gives v + 1/λ + ε as printed [perone2021, eq. 6]: a variance added to a precision, and the
    second moment of a batch mean in place of that of a sum, which is too small by a factor of about N M.

    In ``osc.train`` it trains as :class:`MAP` does; after another training loop use :meth:`from_optimizer`. If early
    stopping has restored earlier weights, the squared gradients of single data are computed there, in one pass.

    v̂ averages over the weights of past steps, as far back as its memory reaches. If training had not converged, or the
    learning rate fell only at the very end, precisions are too high, by several times on small data sets.
    :meth:`refresh` recomputes the moment at the final weights.

    Batch normalisation is in training mode for the state of the optimiser, and in evaluation mode in a refresh.

    Args:
        model: The network f_θ; training changes it in place.
        likelihood: p(y|f).
        prior: p(θ): a precision, "fan_in", or an object of ``osc.priors``.
        scaling: "corrected" or "paper".
        temperature: T of the likelihood in the result; training does not depend on it.

    Raises:
        TypeError: ``model``, ``likelihood`` or ``prior`` is of the wrong type.
        ValueError: the scaling is unknown; in training, the optimiser has no second moment, or a batch is all data.

    Cost: that of MAP, plus one pass over the data for the statistics of the likelihood, and the gradients of 16
    batches; on UCI sets about a hundredth of the training (``l2m-uci``).

    >>> x, y = torch.randn(60, 4), torch.randint(3, (60,))
    >>> method = L2M(nn.Linear(4, 3), osc.likelihoods.Categorical())
    >>> done = osc.train(method, (x, y), epochs=20, batch_size=10, progress=False)
    >>> done.posterior
    Gaussian(structure='diag', P=15, N=60, likelihood=Categorical, prior=Isotropic)
    """

    name = "l2m"
    has_plain_steps = False
    fixed_settings = (*MAP.fixed_settings, "scaling")
    options = {"temperature": replace(TEMPERATURE, default=0.1)}

    num_data: Tensor
    batch_size: Tensor
    steps: Tensor
    noise: Tensor

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        prior: PriorLike = 1.0,
        scaling: str = "corrected",
        temperature: float = 1.0,
    ) -> None:
        super().__init__(model, likelihood, prior)
        require_positive("the temperature", temperature)
        self.temperature = temperature
        self.scaling = choose("scaling", scaling, SCALINGS)
        # the noise of the batches is averaged in the same way as the squared gradients
        noise = torch.zeros((), dtype=torch.double)
        self.store(num_data=counter(), batch_size=counter(), steps=counter(), noise=noise)
        self._optimizer: Optimizer | None = None
        self._trained: tuple[SecondMoments, Sampling, Data] | None = None
        self._processes = ALONE
        self._finish: Callable[[Gaussian], Gaussian] = unchanged
        self._posterior: Gaussian | None = None

    def optimizer(self, make: Callable[..., Optimizer], lr: float) -> Optimizer:
        """Return the optimiser of the settings, and keep a reference to its state."""
        self._optimizer = super().optimizer(make, lr)
        require_second_moment(self._optimizer)
        return self._optimizer

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """The loss of :class:`MAP`.

        Raises:
            ValueError: the batch is the whole data set.
        """
        size = self.share.size(y)
        if int(self.batch_size) < size:
            self.num_data.fill_(num_data)
            self.batch_size.fill_(size)
            if self.scaling == "corrected":
                Sampling(num_data, size).require_noise()
        if self._optimizer is not None:
            memory = memory_of(self._optimizer.param_groups[0])
            self.noise.mul_(memory).add_((1 - memory) * Sampling(num_data, size).noise(size))
            self.steps.add_(1)
        return super().loss(x, y, num_data)

    def after_training(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Make the posterior from the state of the optimiser at the final weights."""
        assert self._optimizer is not None
        moments = SecondMoments.of(self.model, self._optimizer)
        sampling = Sampling(int(self.num_data), int(self.batch_size))
        self._trained = moments, sampling, data.data if isinstance(data, Fixed) else data
        self._processes = self.share.processes
        if self.scaling == "paper":
            given, self.prior = self.prior, printed_prior(self.prior, moments)
            self._make(moments.raw)
            self.prior = given
        elif moments.steps != int(self.steps):  # early stopping has restored earlier weights
            choice: dict[str, Any] = {"curvature": "empirical_fisher", "prior": self.prior, "subset": moments.names}
            choice["distributed"] = self.share.distributed
            self._posterior = laplace_in_training(self.model, self.likelihood, data, structure="diag", **choice)
        else:
            network = self._network()  # the prior acts through the gradient, as a coupled weight decay does
            decay = self.prior.bind(network.space).vector(network.space).to(network.mean) / sampling.num_data
            noise = float(self.noise) / moments.youngest.bias
            self._make_from_state(moments.fisher(network.mean, sampling.num_data, noise, decay))

    @classmethod
    def from_optimizer(
        cls,
        model: nn.Module,
        optimizer: Optimizer,
        num_data: int,
        batch_size: int,
        likelihood: Likelihood,
        data: Data,
        *,
        prior_precision: str | float | Prior = "evidence",
        scaling: str = "corrected",
        sampling: str = "shuffled",
        loss_scale: str | float = 1.0,
        drop_last: bool = False,
        clipped: bool = False,
        validation: Data | None = None,
    ) -> "L2M":
        r"""Make the method from an optimiser after any training loop.

        Args:
            model: Trained network; it is left unchanged.
            optimizer: Adam, AdamW, NAdam, RAdam (AMSGrad, fused, foreach and capturable ones too), RMSprop or Adadelta,
                in its final state.
            num_data: N.
            batch_size: M, the number of data in one step of the optimiser, including all accumulated gradients.
            likelihood: p(y|f); the loss was its negative logarithm, averaged over the batch.
            data: Training data or a part of them, for the statistics of the likelihood and :meth:`refresh`. In a
                process group of ``torch.distributed``, those of this process.
            prior_precision: Precision of p(θ): a number or an object of ``osc.priors``; "evidence" to maximise the
                evidence; "validation" to choose it on held-out data; "l2" for N times the coupled weight decay;
                "adamw" for the equivalent of a decoupled one, N wd (√v̂ + ε) for each weight. Weight decay is not
                treated as a prior unless "l2" or "adamw" is given.
            scaling: "corrected" or "paper".
            sampling: "shuffled" for epochs without replacement, "replacement" for batches drawn with replacement.
            loss_scale: c, the NLL per datum over the loss, or "mse" for ``mse_loss``, the mean over data and outputs.
            drop_last: True if incomplete last batches were dropped. A small last batch contributes much of the noise
                in the second moment.
            clipped: True if gradients were clipped, which raises an error: their second moment is not the curvature.
            validation: Held-out data, for ``prior_precision="validation"``.

        Returns:
            The method, with its ``posterior``; pass it to ``osc.predict`` or ``osc.posteriors.Mixture``.

        Raises:
            ValueError: the optimiser has no second moment or has made no step, batches are the whole data set,
                gradients were clipped, or the prior cannot be derived.

        Warns:
            UserWarning: the second moment averages over too few steps and is noisy, or it is far from that of a few
                batches at the final weights, as after a training that has not converged.

        Cost: one pass over ``data`` and the gradients of 16 batches, plus the tuning with "evidence" or "validation".
        """
        if clipped:
            raise ValueError(
                "the second moment of clipped gradients is not the curvature: compute the squared gradients of single "
                "data in a separate pass, osc.laplace(..., structure='diag', curvature='empirical_fisher')."
            )
        moments, batches = SecondMoments.of(model, optimizer), Sampling(num_data, batch_size, sampling, drop_last)
        if is_pair(data) and count(data[0]) > num_data:
            raise ValueError(
                f"num_data={num_data}, but {count(data[0])} data were passed: give N, the number of all training data."
            )
        method = cls(model, likelihood, 1.0, scaling)
        method._trained = moments, batches, data
        method._processes = group("auto")
        factor = method._nll_over(loss_scale)
        if scaling == "paper":
            method.prior = printed_prior(prior_precision, moments)
            method._make(moments.raw)
            return method
        method.prior, method._finish = chosen_prior(prior_precision, moments, factor * num_data, validation)
        noise, _ = batches.average(moments.youngest)
        method._make_from_state(factor**2 * moments.fisher(method._network().mean, num_data, noise))
        return method

    @property
    def posterior(self) -> Gaussian:
        """The present posterior."""
        return self.result()

    def result(self) -> Gaussian:  # type: ignore[override]
        """The posterior.

        Raises:
            RuntimeError: there is no posterior yet.
        """
        if self._posterior is None:
            raise RuntimeError("there is no posterior yet: use osc.train(method, data), or L2M.from_optimizer(...).")
        return self._posterior if self.temperature == 1 else self._posterior.replace(temperature=self.temperature)

    def refresh(self, steps: int = 200, labels: str = "data", generator: torch.Generator | None = None) -> Gaussian:
        r"""Recompute F from the gradients of batches at the present, fixed weights.

        Args:
            steps: Number of batches, from several passes if needed; data in a pair (X, Y) or a data set are shuffled.
                A loader that gives the same batches in every pass is read once.
            labels: "data" for the labels of the data, "drawn" for labels sampled from the network: the Fisher
                information rather than the empirical one.
            generator: Generator for the order of the data and the labels.

        Returns:
            The new posterior, which replaces that of this method. The relative error of F is about √(2/steps).

        Raises:
            ValueError: no batch has the size of the batches in training, or all batches are the same.

        Cost: ``steps`` forward and backward passes, each half the time of a training step.
        """
        choose("labels", labels, LABELS)
        if steps < 2:
            raise ValueError(f"a variance needs at least two batches, got steps={steps}.")
        self._make(self._gradients(labels, generator).fisher(steps))
        return self.result()

    def _gradients(self, labels: str = "data", generator: torch.Generator | None = None) -> BatchGradients:
        _, sampling, data = self._required
        return BatchGradients(self._network(), self.likelihood, data, sampling, labels, generator, self._processes)

    def _make_from_state(self, fisher: Float[Tensor, " P"]) -> None:
        """Make the posterior with F from the optimiser's state; warn if F is noisy or disagrees with these weights."""
        moments, sampling, _ = self._required
        sampling.require_noise()
        warn_of_noise(sampling.average(moments.youngest)[1])
        self._gradients(generator=torch.Generator().manual_seed(0)).compare(fisher)
        self._make(fisher)

    @property
    def _required(self) -> tuple[SecondMoments, Sampling, Data]:
        if self._trained is None:
            raise RuntimeError("nothing has been trained yet: use osc.train(method, data), or L2M.from_optimizer(...).")
        return self._trained

    def _network(self) -> Network:
        with undisturbed(self.model):
            return Network(self.model.eval(), self._required[0].names)

    def _nll_over(self, loss_scale: str | float) -> float:
        """c, the NLL per datum over the loss."""
        if not isinstance(loss_scale, str):
            if not (math.isfinite(loss_scale) and loss_scale > 0):
                raise ValueError(f"loss_scale must be positive, the NLL per datum over the loss, got {loss_scale}.")
            return float(loss_scale)
        choose("loss scale", loss_scale, (SQUARED_ERROR,))
        if not isinstance(self.likelihood, GaussianLikelihood) or torch.as_tensor(self.likelihood.scale).ndim:
            raise ValueError(
                f"loss_scale={SQUARED_ERROR!r} is for a Gaussian likelihood with one noise scale, got "
                f"{self.likelihood!r}: give the factor from the loss to the NLL as a number."
            )
        x, _ = next(iter(as_batches(self._required[2])))
        return self._network()(take(x, slice(1))).numel() / (2 * float(self.likelihood.scale) ** 2)

    def _make(self, fisher: Float[Tensor, " P"]) -> None:
        network, (_, sampling, data) = self._network(), self._required
        curvature = constant_diagonal(network, fisher)
        q = gaussian_with_curvature(
            network, self.likelihood, self.prior, data, curvature, sampling.num_data, self._processes
        )
        self._posterior = self._finish(q)
