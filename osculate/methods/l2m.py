"""A Laplace approximation from the second moment that the optimiser has kept."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from osculate.batches import Data, Fixed, as_batches, is_pair
from osculate.checks import require_positive
from osculate.inputs import Inputs, count, take
from osculate.likelihoods import Gaussian as GaussianLikelihood, Likelihood
from osculate.methods._base import TEMPERATURE
from osculate.methods._moments import (
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
from osculate.methods._running import constant_diagonal, gaussian_with_curvature
from osculate.methods.laplace import laplace
from osculate.methods.map import MAP
from osculate.parameters import Network, undisturbed
from osculate.posteriors import Gaussian
from osculate.priors import Prior
from osculate.registry import choose

#: Scalings of the second moment.
SCALINGS = ("corrected", "paper")
#: Labels of the gradients of a refresh.
LABELS = ("data", "drawn")
#: The loss ``torch.nn.functional.mse_loss``, whose gradient is not that of the NLL.
SQUARED_ERROR = "mse"


class L2M(MAP):
    r"""A diagonal Laplace approximation from the state of Adam and its relatives, at no cost. [perone2021]

    .. math:: \Lambda = c^2 F + \operatorname{diag}(\delta), \qquad
              F = N M \frac{N - 1}{N - M} \max(\hat v - \bar g^2, 0) + N \bar g^2

    v̂ is the average squared gradient of batches of M, without the bias of its start; ḡ the mean gradient, which at a
    mode is what a decoupled weight decay holds against: wd (√v̂ + ε) θ with AdamW, else zero. The factor with N and M
    says how much less the mean of a batch without replacement varies; it is one with replacement. c leads from the loss
    to the NLL. F is the empirical Fisher information, with the data's own labels.

    ``scaling="paper"`` gives v + 1/λ + ε as printed [perone2021, eq. 6]: a variance added to a precision, and the
    second moment of a mean in place of that of a sum, which is about N M times too small.

    As a method of ``osc.train`` it is :class:`MAP` with a posterior; after your own training loop
    :meth:`from_optimizer` makes it. Where early stopping has put earlier weights back, the squared gradients of single
    data are taken at these, in one pass.

    v̂ is that of the weights on the way to the mode, as far back as its memory reaches: after a training that had not
    come to rest, or whose learning rate fell only at the very end, precisions are too high, by several times on small
    data. :meth:`refresh` takes the moment again where the weights are.

    Layers with batch normalisation are as in training while the optimiser learns, and as in evaluation in a refresh.

    Args:
        model: the network f_θ; training changes it in place.
        likelihood: p(y|f).
        prior: p(θ): a precision, or an object of ``osc.priors``.
        scaling: "corrected" or "paper".
        temperature: T of the likelihood in the result; training is that of MAP at any temperature.

    Raises:
        TypeError: ``model`` is no module, ``likelihood`` no likelihood, or ``prior`` no prior.
        ValueError: an unknown scaling; when trained, an optimiser without a second moment or a batch of all data.

    Cost: that of MAP, and one pass over the data for the statistics of the likelihood.

    >>> x, y = torch.randn(60, 4), torch.randint(3, (60,))
    >>> method = L2M(nn.Linear(4, 3), osc.likelihoods.Categorical())
    >>> done = osc.train(method, (x, y), epochs=20, batch_size=10, progress=False)
    >>> done.posterior
    Gaussian(structure='diag', P=15, N=60, likelihood=Categorical, prior=Isotropic)
    """

    name = "l2m"
    options = {"temperature": replace(TEMPERATURE, default=0.1)}

    num_data: Tensor
    batch_size: Tensor
    steps: Tensor
    noise: Tensor

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        prior: float | Prior = 1.0,
        scaling: str = "corrected",
        temperature: float = 1.0,
    ) -> None:
        super().__init__(model, likelihood, prior)
        require_positive("the temperature", temperature)
        self.temperature = temperature
        self.scaling = choose("scaling", scaling, SCALINGS)
        self.register_buffer("num_data", torch.zeros((), dtype=torch.long))
        self.register_buffer("batch_size", torch.zeros((), dtype=torch.long))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        #: of batches, averaged as the optimiser averages squared gradients
        self.register_buffer("noise", torch.zeros((), dtype=torch.double))
        self._optimizer: Optimizer | None = None
        self._moments: SecondMoments | None = None
        self._sampling: Sampling | None = None
        self._data: Data | None = None
        self._finish: Callable[[Gaussian], Gaussian] = unchanged
        self._posterior: Gaussian | None = None

    def choices(self) -> Mapping[str, Any]:
        """With the scaling."""
        return {**super().choices(), "scaling": self.scaling}

    def optimizer(self, make: Callable[..., Optimizer], lr: float) -> Optimizer:
        """That of the settings, whose state is kept."""
        self._optimizer = super().optimizer(make, lr)
        require_second_moment(self._optimizer)
        return self._optimizer

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """That of :class:`MAP`.

        Raises:
            ValueError: a batch of all data.
        """
        if int(self.batch_size) < len(y):
            self.num_data.fill_(num_data)
            self.batch_size.fill_(len(y))
            if self.scaling == "corrected":
                Sampling(num_data, len(y)).require_noise()
        if self._optimizer is not None:
            memory = memory_of(self._optimizer.param_groups[0])
            self.noise.mul_(memory).add_((1 - memory) * Sampling(num_data, len(y)).noise(len(y)))
            self.steps.add_(1)
        return super().loss(x, y, num_data)

    def after_training(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """The posterior, from the state of the optimiser at the weights that it has left."""
        assert self._optimizer is not None
        moments = self._moments = SecondMoments.of(self.model, self._optimizer)
        sampling = self._sampling = Sampling(int(self.num_data), int(self.batch_size))
        self._data = data.data if isinstance(data, Fixed) else data
        if self.scaling == "paper":
            given, self.prior = self.prior, printed_prior(self.prior, moments)
            self._make(moments.raw)
            self.prior = given
        elif moments.steps != int(self.steps):  # early stopping has put the weights of an earlier step back
            with undisturbed(self.model):
                self._posterior = laplace(
                    self.model.eval(),
                    self.likelihood,
                    data,
                    structure="diag",
                    prior=self.prior,
                    curvature="empirical_fisher",
                    subset=list(moments.names),
                )
        else:
            space = self._network().space  # the prior acts through the gradient, as a coupled weight decay does
            decay = self.prior.bind(space).vector(space).to(self._mean) / sampling.num_data
            noise = float(self.noise) / moments.rule.bias
            self._take(moments.fisher(self._mean, sampling.num_data, noise, decay))

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
        r"""Make it after your own training loop, from the optimiser.

        Args:
            model: Trained network; it is left unchanged.
            optimizer: Adam, AdamW, NAdam, RAdam (AMSGrad, fused, foreach and capturable ones too), RMSprop or Adadelta,
                in the state that training has left.
            num_data: N.
            batch_size: M, the data behind one step of the optimiser: with accumulated gradients all of them.
            likelihood: p(y|f), whose negative logarithm, averaged over the batch, was the loss.
            data: Training data or a part of them, for the statistics of the likelihood and :meth:`refresh`.
            prior_precision: Precision of p(θ): a number or an object of ``osc.priors``; "evidence" for those of largest
                evidence; "validation" for what held-out data choose; "l2" for N times the coupled weight decay;
                "adamw" for what a decoupled one amounts to, N wd (√v̂ + ε) for each weight. A weight decay is never
                taken for a prior unless that is asked for.
            scaling: "corrected" or "paper".
            sampling: "shuffled" for epochs in which each datum comes once, "replacement" for data drawn anew.
            loss_scale: c, the NLL per datum over the loss, or "mse" for ``mse_loss``, the mean over data and outputs.
            drop_last: True if epochs ended without the data that do not fill a batch. A last batch of few data has much
                of the noise in the second moment.
            clipped: True if gradients were clipped, which is refused: they have lost the curvature.
            validation: held-out data, for ``prior_precision="validation"``.

        Returns:
            The method, with its ``posterior``; it goes into ``osc.predict`` and ``osc.posteriors.Mixture`` as it is.

        Raises:
            ValueError: an optimiser without a second moment or without a step, batches of all data, clipped gradients,
                a prior that cannot be had.

        Warns:
            UserWarning: the window of the second moment is so short that noise is left, or training was shorter; or the
                second moment is far from that of a few batches at the weights as they are, as it is where training has
                not come to rest.

        Cost: one pass over ``data`` and the gradients of 16 batches; with "evidence" or "validation" the tuning on top.
        """
        if clipped:
            raise ValueError(
                "clipped gradients say how large they were allowed to be, and not how large they were: take those of "
                "single data in a pass of their own, osc.laplace(..., structure='diag', curvature='empirical_fisher')."
            )
        moments, found = SecondMoments.of(model, optimizer), Sampling(num_data, batch_size, sampling, drop_last)
        if is_pair(data) and count(data[0]) > num_data:
            raise ValueError(f"num_data={num_data}, but {count(data[0])} data were passed: give N, all of the data.")
        method = cls(model, likelihood, 1.0, scaling)
        method._moments, method._sampling, method._data = moments, found, data
        factor = method._nll_over(loss_scale)
        if scaling == "paper":
            method.prior = printed_prior(prior_precision, moments)
            method._make(moments.raw)
            return method
        method.prior, method._finish = chosen_prior(prior_precision, moments, factor * num_data, validation)
        noise, _ = found.average(moments.rule)
        method._take(factor**2 * moments.fisher(method._mean, num_data, noise))
        return method

    @property
    def posterior(self) -> Gaussian:
        """The present posterior."""
        return self.result()

    def result(self) -> Gaussian:  # type: ignore[override]
        """The posterior.

        Raises:
            RuntimeError: there is none yet.
        """
        if self._posterior is None:
            raise RuntimeError("there is no posterior yet: use osc.train(method, data), or L2M.from_optimizer(...).")
        return self._posterior if self.temperature == 1 else self._posterior.replace(temperature=self.temperature)

    def refresh(self, steps: int = 200, labels: str = "data", generator: torch.Generator | None = None) -> Gaussian:
        r"""The posterior with F taken again, from the gradients of so many batches at weights that do not move.

        Args:
            steps: batches; the data are gone through as often as needed, in random order where they are a pair (X, Y)
                or a data set. A loader that gives the same batches in every pass is gone through once.
            labels: "data" for those of the data, "drawn" for labels of the network: the Fisher information proper.
            generator: Generator for the order of the data and the labels.

        Returns:
            The posterior, which is from now on that of this method. Each F is off by some √(2/steps), as a fraction.

        Raises:
            ValueError: no batch has the size of those in training, or all batches are the same.

        Cost: ``steps`` forward and backward passes, half a step of training each.
        """
        choose("labels", labels, LABELS)
        if steps < 2:
            raise ValueError(f"a variance needs at least two batches, got steps={steps}.")
        self._make(self._gradients(labels, generator).fisher(steps).to(self._mean))
        return self.result()

    def _gradients(self, labels: str = "data", generator: torch.Generator | None = None) -> BatchGradients:
        assert self._data is not None
        return BatchGradients(self._network(), self.likelihood, self._data, self._seen()[1], labels, generator)

    def _take(self, fisher: Float[Tensor, " P"]) -> None:
        """The posterior with F from the optimiser's state; warn where that is not of these weights, or of few steps."""
        moments, sampling = self._seen()
        sampling.require_noise()
        warn_of_noise(sampling.average(moments.rule)[1])
        self._gradients(generator=torch.Generator().manual_seed(0)).compare(fisher)
        self._make(fisher)

    def _seen(self) -> tuple[SecondMoments, Sampling]:
        if self._moments is None or self._sampling is None:
            raise RuntimeError("nothing has been trained yet: use osc.train(method, data), or L2M.from_optimizer(...).")
        return self._moments, self._sampling

    def _network(self) -> Network:
        with undisturbed(self.model):
            return Network(self.model.eval(), self._seen()[0].names)

    @property
    def _mean(self) -> Float[Tensor, " P"]:
        return torch.cat([self.model.get_parameter(name).detach().reshape(-1) for name in self._seen()[0].names])

    def _nll_over(self, loss_scale: str | float) -> float:
        """c."""
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
        assert self._data is not None
        x, _ = next(iter(as_batches(self._data)))
        return self._network()(take(x, slice(1))).numel() / (2 * float(self.likelihood.scale) ** 2)

    def _make(self, fisher: Float[Tensor, " P"]) -> None:
        network, sampling = self._network(), self._seen()[1]
        assert self._data is not None
        curvature = constant_diagonal(network, fisher)
        q = gaussian_with_curvature(network, self.likelihood, self.prior, self._data, curvature, sampling.num_data)
        self._posterior = self._finish(q)
