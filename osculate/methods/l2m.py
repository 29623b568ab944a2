"""A Laplace approximation from the second moment that the optimiser has kept."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from osculate.batches import Data, as_batches, is_pair
from osculate.inputs import Inputs, count, take
from osculate.likelihoods import Gaussian as GaussianLikelihood, Likelihood
from osculate.methods._decay import chosen_prior, printed_prior, unchanged
from osculate.methods._kept import kept_diagonal, kept_gaussian
from osculate.methods._moments import Sampling, SecondMoments, require_second_moment
from osculate.methods.map import MAP
from osculate.parameters import Network, undisturbed
from osculate.posteriors import Gaussian
from osculate.priors import Prior
from osculate.registry import choose

#: What the second moment is multiplied with.
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

    As a method of ``osc.train`` it is :class:`MAP` with a posterior; from a training of one's own
    :meth:`from_optimizer` makes it. Where early stopping has put earlier weights back, the second moment is taken again
    at these, in one pass.

    Args:
        model: the network f_θ; training changes it in place.
        likelihood: p(y|f).
        prior: p(θ): a precision, or an object of ``osc.priors``.
        scaling: "corrected" or "paper".

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

    num_data: Tensor
    batch_size: Tensor

    def __init__(
        self, model: nn.Module, likelihood: Likelihood, prior: float | Prior = 1.0, scaling: str = "corrected"
    ) -> None:
        super().__init__(model, likelihood, prior)
        self.scaling = choose("scaling", scaling, SCALINGS)
        self.register_buffer("num_data", torch.zeros((), dtype=torch.long))
        self.register_buffer("batch_size", torch.zeros((), dtype=torch.long))
        self._optimizer: Optimizer | None = None
        self._left: list[Tensor] = []  # the weights as the optimiser has left them
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
        return super().loss(x, y, num_data)

    def end_epoch(self, epoch: int, epochs: int, data: Iterable[tuple[Inputs, Tensor]]) -> Mapping[str, float]:
        """Note the weights."""
        self._left = [p.detach().clone() for p in self.model.parameters()]
        return {}

    def after_training(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """The posterior, from the state of the optimiser at the weights that it has left."""
        assert self._optimizer is not None
        self._moments = SecondMoments.of(self.model, self._optimizer)
        self._sampling, self._data = Sampling(int(self.num_data), int(self.batch_size)), data
        restored = any(not torch.equal(a, b) for a, b in zip(self._left, self.model.parameters(), strict=False))
        if restored and self.scaling == "corrected":
            self.refresh(-(-self._sampling.num_data // self._sampling.batch_size))
            return
        given = self.prior
        if self.scaling == "paper":
            self.prior = printed_prior(given, self._moments)
            self._make(self._moments.raw)
            self.prior = given
            return
        self._moments.warn_of_noise()
        space = self._network().space  # the prior acts through the gradient, as a coupled weight decay does
        decay = given.bind(space).vector(space).to(self._mean) / self._sampling.num_data
        self._make(self._moments.fisher(self._mean, self._sampling, decay))

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
        clipped: bool = False,
        validation: Data | None = None,
    ) -> "L2M":
        r"""From a training of one's own, right after it.

        Args:
            model: the trained network; it is left as it is.
            optimizer: Adam, AdamW, NAdam, RAdam (AMSGrad, fused, foreach and capturable ones too), RMSprop or Adadelta,
                in the state that training has left.
            num_data: N.
            batch_size: M, the data behind one step of the optimiser: with accumulated gradients all of them.
            likelihood: p(y|f), whose negative logarithm, averaged over the batch, was the loss.
            data: training data or some of them, for the statistics of the likelihood and :meth:`refresh`.
            prior_precision: of p(θ): a number or an object of ``osc.priors``; "evidence" for one a layer of largest
                evidence; "validation" for what held-out data choose; "l2" for N times the coupled weight decay;
                "adamw" for what a decoupled one amounts to, N wd (√v̂ + ε) for each weight. A weight decay is never
                taken for a prior unless that is asked for.
            scaling: "corrected" or "paper".
            sampling: "shuffled" for epochs in which each datum comes once, "replacement" for data drawn anew.
            loss_scale: c, the NLL per datum over the loss, or "mse" for ``mse_loss``, the mean over data and outputs.
            clipped: whether gradients were clipped; they then say nothing of the curvature.
            validation: held-out data, for ``prior_precision="validation"``.

        Returns:
            The method, with its ``posterior``; it goes into ``osc.predict`` and ``osc.posteriors.Mixture`` as it is.

        Raises:
            ValueError: an optimiser without a second moment or without a step, batches of all data, clipped gradients,
                a prior that cannot be had.

        Warns: where the window of the second moment is so short that noise is left, and where training was shorter.

        Cost: one pass over ``data``; with "evidence" or "validation" the tuning on top.
        """
        if clipped:
            raise ValueError(
                "clipped gradients say how large they were allowed to be, and not how large they were: call "
                "refresh(steps) of an L2M made with clipped=False, which takes them again, or use osc.laplace."
            )
        moments, found = SecondMoments.of(model, optimizer), Sampling(num_data, batch_size, sampling)
        method = cls(model, likelihood, 1.0, scaling)
        method._moments, method._sampling, method._data = moments, found, data
        factor = method._nll_over(loss_scale)
        if scaling == "paper":
            method.prior = printed_prior(prior_precision, moments)
            method._make(moments.raw)
            return method
        found.require_noise()
        moments.warn_of_noise()
        method.prior, method._finish = chosen_prior(prior_precision, moments, factor * num_data, validation)
        method._make(factor**2 * moments.fisher(method._mean, found))
        return method

    @property
    def posterior(self) -> Gaussian:
        """The posterior as it is now."""
        return self.result()

    def result(self) -> Gaussian:  # type: ignore[override]
        """The posterior.

        Raises:
            RuntimeError: there is none yet.
        """
        if self._posterior is None:
            raise RuntimeError("there is no posterior yet: use osc.train(method, data), or L2M.from_optimizer(...).")
        return self._posterior

    def refresh(self, steps: int = 200, labels: str = "data", generator: torch.Generator | None = None) -> Gaussian:
        r"""The posterior with F taken again, from the gradients of so many batches at weights that do not move.

        Args:
            steps: batches; the data are gone through as often as needed, in random order where they are a pair (X, Y).
            labels: "data" for those of the data, "drawn" for labels of the network: the Fisher information proper.
            generator: for the order of the data and the labels.

        Returns:
            The posterior, which is from now on that of this method.

        Raises:
            ValueError: no batch has the size of those in training.

        Cost: ``steps`` forward and backward passes, half a step of training each.
        """
        choose("labels", labels, LABELS)
        if steps < 2:
            raise ValueError(f"a variance needs at least two batches, got steps={steps}.")
        sampling, network = self._seen()[1], self._network()
        total, squares = torch.zeros_like(self._mean.double()), torch.zeros_like(self._mean.double())
        for _, (x, y) in zip(range(steps), self._batches(generator), strict=False):
            g = self._gradient(network, x, y, labels, generator).double()
            total += g
            squares += g.square()
        mean, size = total / steps, sampling.batch_size
        if labels == "drawn":  # of mean zero, whatever the batch
            fisher = sampling.num_data * size * squares / steps
        else:
            sampling.require_noise()
            fisher = sampling.fisher((squares / steps - mean.square()) * steps / (steps - 1), mean)
        self._make(fisher.to(self._mean))
        return self.result()

    def _gradient(
        self, network: Network, x: Inputs, y: Tensor, labels: str, generator: torch.Generator | None
    ) -> Float[Tensor, " P"]:
        """∇ of the mean log likelihood of a batch."""
        theta = {name: value.requires_grad_() for name, value in network.parameters.items()}
        with torch.enable_grad():
            f = network(x, theta)
        y, likelihood = y.to(f.device), self.likelihood
        drawn = labels == "drawn"
        column = likelihood.sampled_root(f.detach(), y, 1, generator)[0] if drawn else likelihood.score(f.detach(), y)
        parts = torch.autograd.grad(f, list(theta.values()), column / len(f), materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])

    def _batches(self, generator: torch.Generator | None = None) -> Iterator[tuple[Inputs, Tensor]]:
        """Batches of the size of training, over and over."""
        data, size = self._data, self._seen()[1].batch_size
        while True:
            whole = 0
            if data is not None and is_pair(data):
                order = torch.randperm(count(data[0]), generator=generator)
                data = (take(data[0], order), data[1][order])
            assert data is not None
            for x, y in as_batches(data, size):
                if len(y) == size:
                    whole += 1
                    yield x, y
            if not whole:
                raise ValueError(
                    f"no batch of the data holds {size} data, as those in training did: pass them as tensors (X, Y), "
                    f"or a loader with batch_size={size}."
                )

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
        curvature = kept_diagonal(network, fisher)
        q = kept_gaussian(network, self.likelihood, self.prior, self._data, curvature, sampling.num_data)
        self._posterior = self._finish(q)
