"""Codes, reconstructions and new images by any posterior over an autoencoder."""

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import chain, islice
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from osculate.autoencoders.autoencoder import (
    VAE,
    Autoencoder,
    require_counts,
    require_fit,
    require_inputs,
    require_unrefined,
)
from osculate.autoencoders.distributions import Encoding, MarginalReconstruction, Reconstruction
from osculate.curvature.linearisation import recording
from osculate.differentiation import forward_derivative
from osculate.linalg import root
from osculate.posteriors import Chains, Gaussian, Posterior, Sampled, Snapshots
from osculate.posteriors._base import as_posterior
from osculate.posteriors.linearised import interacting_outputs, linear_functions, moments, single_outputs
from osculate.predictive.predict import choose_link
from osculate.predictive.sampled import warn_if_far_worse
from osculate.randomness import drawn_on, fresh_seed
from osculate.registry import choose

#: Inputs that are encoded at a time for the moments of their codes.
ROWS = 500
#: Codes of a VAE for each datum, by default, of the linearised network.
CODES = 20
#: The computations of codes and images: by drawn networks, or by the linearised one.
WAYS = ("sampled", "linearised")


class Representation:
    r"""A stochastic representation: codes and images of networks drawn from a posterior.

    It serves a plain autoencoder (one network), a VAE, dropout, an ensemble, and any Laplace posterior, post hoc or
    online.

    Args:
        q: A posterior over an :class:`Autoencoder` or :class:`VAE`, or the result of ``osc.train``.
        codes: Data whose codes define the distribution of new codes (:meth:`generate`); not needed for a VAE.

    Raises:
        TypeError: not a posterior, or one over another network.
        ValueError: a refined posterior, a Gaussian one over the encoder of a VAE, or one whose draws change parameters
            of q(z|h).

    >>> from osculate.autoencoders import Autoencoder, Representation
    >>> x = torch.randn(30, 6)
    >>> net = Autoencoder(nn.Linear(6, 2), nn.Linear(2, 6))
    >>> q = osc.laplace(net, osc.likelihoods.Gaussian(0.5), (x, x), structure="diag", prior=1.0)
    >>> r = Representation(q, codes=x)
    >>> r.encode(x, samples=5).variance.shape, r.reconstruct(x, samples=5).mean.shape, r.generate(3).shape
    (torch.Size([30, 2]), torch.Size([30, 6]), torch.Size([3, 6]))
    """

    def __init__(self, q: Any, codes: Shaped[Tensor, "N *D"] | None = None) -> None:
        self.posterior = as_posterior(q)
        model = self.posterior.model
        if not isinstance(model, Autoencoder):
            raise TypeError(
                "a representation needs a posterior over an osc.autoencoders.Autoencoder, not over a "
                f"{type(model).__name__}: build the network as Autoencoder(encoder, decoder)."
            )
        if isinstance(self.posterior, Gaussian):
            model.require_curvature(self.posterior.network.space.names)
        require_unrefined(self.posterior)
        q, own = self.posterior, "posterior."  # the parameters of q(z|h), which the module alone would not define
        if isinstance(q, Snapshots | Chains) and any(name.startswith(own) for name in q.network.space.names):
            raise ValueError(
                f"the networks of these {type(q).__name__} differ in the parameters of q(z|x): use an ensemble, a "
                "posterior over the decoder, or codes without parameters, such as GaussianCodes()."
            )
        self.model: Autoencoder = model
        self._data = codes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.posterior!r})"

    def _draws(self, samples: int, generator: torch.Generator | None) -> Iterator[Callable[[Any], Tensor]]:
        """Yield drawn networks, or the one network of a posterior that cannot be sampled."""
        require_counts(samples=samples)
        if not isinstance(self.posterior, Sampled):
            yield self.posterior.network
            return
        yield from self.posterior.draws(samples, generator)

    def _always(self, samples: int, generator: torch.Generator | None) -> Iterator[Callable[[Any], Tensor]]:
        """Yield exactly this many networks, cycling through them if there are fewer."""
        require_counts(samples=samples)
        rounds = iter(lambda: self._draws(samples, generator), None)
        yield from islice(chain.from_iterable(rounds), samples)

    def _ready(self, x: Shaped[Tensor, "*N"]) -> Float[Tensor, "N *D"]:
        """Check inputs, and move them to the device and type of the network."""
        require_inputs(x)
        network = self.posterior.network
        return x.to(network.device, network.dtype)

    @torch.no_grad()
    def encode(
        self,
        x: Shaped[Tensor, "N *D"],
        samples: int = 100,
        generator: torch.Generator | None = None,
        batch_size: int | None = None,
        *,
        via: str = "sampled",
    ) -> Encoding:
        r"""Encode data as a distribution of codes.

        With ``via="linearised"`` no network is drawn; the mean of the code is linear in the weights, and

        .. math:: \operatorname{var} z = \operatorname{diag}(J_e \Sigma J_e^\top) + \sigma^2(x)

        exactly, with any structure of the posterior covariance Σ. The variance σ² of a VAE's encoder is that at
        the mode. Codes that are not normal, such as those between 0 and 1, are replaced by normal ones with equal
        moments.

        Args:
            x: Inputs.
            samples: S, networks drawn; all inputs share them.
            generator: Source of random numbers.
            batch_size: Inputs at a time; by default all at once.
            via: "sampled", or "linearised" for a Gaussian posterior, which ignores ``samples`` and ``generator``.

        Returns:
            The distribution of the codes (N, K), with its variance by weights and by the encoder; a normal distribution
            with "linearised".

        Raises:
            TypeError: inputs that are not floating point, or "linearised" with a posterior that is not Gaussian.
            ValueError: no inputs, inputs that are not finite, an unknown ``via``.

        Cost: S forward passes of the encoder. "linearised": one, and K backward passes without weight gradients.

        >>> from osculate.autoencoders import Autoencoder, Representation
        >>> x, net = torch.randn(30, 6), Autoencoder(nn.Linear(6, 2), nn.Linear(2, 6))
        >>> q = osc.laplace(net, osc.likelihoods.Gaussian(0.5), (x, x), structure="kron", prior=1.0)
        >>> Representation(q).encode(x, via="linearised").weight_variance.shape
        torch.Size([30, 2])
        """
        choose("way to codes", via, WAYS)
        require_counts(samples=samples, batch_size=batch_size)
        x = self._ready(x)
        if via == "linearised":
            return linear_encoding(self.posterior, x, batch_size)
        warn_if_far_worse(self.posterior)
        parts = x.split(batch_size or len(x))
        draws = self._draws(samples, generator)
        return self._encoding([(self._of(d), torch.cat([d({"encode": part}) for part in parts])) for d in draws])

    @torch.no_grad()
    def reconstruct(
        self,
        x: Shaped[Tensor, "N *D"],
        samples: int = 100,
        codes: int | None = None,
        generator: torch.Generator | None = None,
        *,
        via: str = "sampled",
        exact: bool = False,
    ) -> Reconstruction:
        r"""Reconstruct data as a distribution of images.

        With ``via="linearised"`` the network is linear in its weights, and its decoder in the code of a VAE,

        .. math:: f_s = f + J(\theta_s - \theta^*) + J_d (z_s - \mu), \qquad z_s \sim \mathcal N(\mu, \sigma^2(x))

        with the same codes for all draws of the weights, so that the two parts of the variance are separate.

        Args:
            x: Inputs.
            samples: W, networks drawn; all inputs share them.
            codes: Z, codes of a VAE drawn for each network; by default 2, ``samples`` if the weights are not random,
                and 20 with "linearised".
            generator: Source of random numbers.
            via: "sampled", or "linearised" for a Gaussian posterior.
            exact: Return the exact variance of each real-valued pixel in place of draws, without correlations between
                pixels; only with "linearised". ``samples``, ``codes`` and ``generator`` are ignored.

        Returns:
            The distribution of the reconstructions, with its variance by weights, by codes and by noise.

        Raises:
            TypeError: inputs that are not floating point, or "linearised" with a posterior that is not Gaussian.
            ValueError: no inputs, inputs that are not finite, no samples, an unknown ``via``, or ``exact`` without
                "linearised" or with pixels that are not real-valued.

        Cost: W passes of the encoder, and W Z of the decoder; the images of all draws are in memory. "linearised": W
        Jacobian-vector products, about three passes each, and K more for a VAE; with ``exact`` a backward pass for each
        output instead.

        >>> from osculate.autoencoders import Autoencoder, Representation
        >>> x, net = torch.randn(30, 6), Autoencoder(nn.Linear(6, 2), nn.Linear(2, 6))
        >>> q = osc.laplace(net, osc.likelihoods.Gaussian(0.5), (x, x), structure="kron", prior=1.0)
        >>> r = Representation(q)
        >>> r.reconstruct(x, 10, via="linearised").outputs.shape
        torch.Size([10, 1, 30, 6])
        >>> r.reconstruct(x, via="linearised", exact=True).weight_variance.shape
        torch.Size([30, 6])
        """
        if choose("way to images", via, WAYS) == "sampled":
            if exact:
                raise ValueError("exact=True is for via='linearised': drawn networks have no variance in closed form.")
            return self.represent(x, samples, codes, generator)[1]
        x = self._ready(x)
        if exact:
            return marginal_reconstruction(self.posterior, x)
        require_counts(samples=samples, codes=codes)
        return linear_reconstruction(self.posterior, x, samples, codes, generator)

    @torch.no_grad()
    def represent(
        self,
        x: Shaped[Tensor, "N *D"],
        samples: int = 100,
        codes: int | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Encoding, Reconstruction]:
        """Return codes and images of the same networks in one pass, as :meth:`encode` and :meth:`reconstruct`.

        From the same state of the generator, every call draws the same weights, for any number of inputs (except for
        the masks of dropout, which are drawn for each datum).

        Args:
            x: Inputs.
            samples: W, networks drawn.
            codes: Z, codes of a VAE drawn for each network.
            generator: Source of random numbers.

        Raises:
            ValueError: no inputs, or inputs that are not finite.
        """
        x = self._ready(x)
        warn_if_far_worse(self.posterior)
        require_counts(samples=samples, codes=codes)
        codes = codes or (2 if isinstance(self.posterior, Sampled) else samples)
        noise = None
        if isinstance(self.model, VAE):  # a separate generator: the number of codes does not change the weights drawn
            on = torch.device("cpu") if generator is None else generator.device
            noise = torch.Generator(on).manual_seed(fresh_seed(generator))
        passes = [self._pass(draw, x, codes, noise) for draw in self._draws(samples, generator)]
        each, images = (list(part) for part in zip(*passes, strict=True))
        return self._encoding(each), Reconstruction(torch.stack(images), self.posterior.likelihood)

    @torch.no_grad()
    def decode(
        self, z: Shaped[Tensor, "N *K"], samples: int = 100, generator: torch.Generator | None = None
    ) -> Reconstruction:
        """Decode given codes as a distribution of images.

        Args:
            z: Codes.
            samples: S, networks drawn; all codes share them.
            generator: Source of random numbers.

        Returns:
            The distribution of the images, with its variance by weights and by noise; the codes are not random.

        Raises:
            ValueError: no codes, or codes that are not finite or not (N, K).

        Cost: S passes of the decoder; the images of all draws are in memory.
        """
        z = self._ready(z)
        latent = self.model.latent
        if z.ndim != 2 or (latent is not None and z.shape[1] != latent):
            wanted = "(N, K)" if latent is None else f"(N, {latent})"
            raise ValueError(f"the codes have shape {tuple(z.shape)}, and this network decodes codes {wanted}.")
        warn_if_far_worse(self.posterior)
        images = [draw({"decode": z}).unsqueeze(0) for draw in self._draws(samples, generator)]
        return Reconstruction(torch.stack(images), self.posterior.likelihood)

    def _of(self, draw: Callable[[Any], Tensor]) -> Autoencoder:
        """The module of a drawn network; members of an ensemble have different modules and distributions of codes."""
        return getattr(getattr(draw, "func", draw), "module", self.model)

    def _encoding(self, each: list[tuple[Autoencoder, Tensor]]) -> Encoding:
        """The distribution of codes from the encoder outputs of each network."""
        random = [(model.posterior, h) for model, h in each if isinstance(model, VAE)]
        return Encoding.drawn(random) if random else Encoding(torch.stack([model.centre(h) for model, h in each]))

    def _pass(
        self, draw: Callable[[Any], Tensor], x: Tensor, codes: int, noise: torch.Generator | None
    ) -> tuple[tuple[Autoencoder, Tensor], Float[Tensor, "Z N *D"]]:
        """Return the encoder output of one network, and the images of Z codes, of one if they are not random."""
        model, raw = self._of(draw), draw({"encode": x})
        every = [model.drawn_code(raw, noise) for _ in range(codes if isinstance(model, VAE) else 1)]
        images = torch.stack([draw({"decode": z}) for z in every])
        require_fit(images[0], x)
        return (model, raw), images

    def networks(
        self, samples: int, generator: torch.Generator | None = None
    ) -> Iterator[Callable[[Float[Tensor, "N *D"]], Float[Tensor, "N *D"]]]:
        """Yield functions from images to their reconstructions without noise, one for each drawn network.

        Exactly this many are returned; networks repeat if the posterior has fewer. If codes are random, each call
        draws new ones.

        Args:
            samples: S, number of functions.
            generator: Source of random numbers.
        """

        def reconstruct(draw: Callable[[Any], Tensor], x: Tensor) -> Tensor:
            f = self._pass(draw, self._ready(x), 1, generator)[1][0]
            return self.posterior.likelihood.distribution(f).mean

        for draw in self._always(samples, generator):
            yield partial(reconstruct, draw)

    def log_prob(
        self, x: Shaped[Tensor, "N *D"], samples: int = 100, generator: torch.Generator | None = None
    ) -> Float[Tensor, " N"]:
        r"""The log density of x under its reconstructions, in nats.

        .. math:: \log \operatorname{E}_{\theta, z \sim q(z \mid x)} p(x \mid f_\theta(z))

        For a VAE this is not the marginal density log p(x), see :func:`bound`.

        Args:
            x: Inputs.
            samples: W, networks drawn.
            generator: Source of random numbers.

        Raises:
            ValueError: no inputs, inputs that are not finite, or reconstructions of another shape.

        Cost: that of :meth:`reconstruct`.
        """
        return self.reconstruct(x, samples, generator=generator).log_prob(self._ready(x))

    @torch.no_grad()
    def generate(self, n: int, generator: torch.Generator | None = None) -> Float[Tensor, "n *D"]:
        """Generate images without noise, each from a separately drawn code and network.

        The codes are drawn from the prior of a VAE, or else from a Gaussian with the moments of the encoded ``codes``.

        Args:
            n: Number of images.
            generator: Source of random numbers.

        Raises:
            ValueError: ``n`` below 1, a plain autoencoder without ``codes``, or a VAE with an unknown code size.

        Cost: n passes of the decoder for one code each, and once a pass of the encoder over ``codes``.
        """
        require_counts(n=n)
        network = self.posterior.network
        if self._data is not None:
            mean, spread = self._moments
            on = drawn_on(mean, generator)
            z = mean + torch.randn(n, len(mean), generator=generator, dtype=mean.dtype, device=on).cpu() @ spread.T
        elif isinstance(self.model, VAE):
            z = self.model.prior.sample(n, self.model.code_size(), generator)
        else:
            raise ValueError(
                "a plain autoencoder has no prior of codes: make the representation with codes=x, data whose codes "
                "define their distribution."
            )
        z = z.to(network.device, network.dtype)
        images = [draw({"decode": z[k : k + 1]}) for k, draw in enumerate(self._always(n, generator))]
        return self.posterior.likelihood.distribution(torch.cat(images)).mean

    @cached_property
    def _moments(self) -> tuple[Float[Tensor, " K"], Float[Tensor, "K K"]]:
        """The mean of the codes of the given data at the mode, and a root of their covariance."""
        assert self._data is not None
        require_inputs(self._data)
        network = self.posterior.network
        parts = self._data.split(ROWS)
        raw = [network({"encode": part.to(network.device, network.dtype)}).detach() for part in parts]
        z = self.model.centre(torch.cat(raw)).double().cpu()
        centred = z - z.mean(0)
        covariance = centred.T @ centred / max(1, len(z) - 1)
        return z.mean(0), root(covariance)


def require_representation(r: Any, what: str) -> None:
    """Raise TypeError unless ``r`` is a :class:`Representation`, above all for a posterior."""
    if not isinstance(r, Representation):
        raise TypeError(
            f"{what} must be an osc.autoencoders.Representation, got {type(r).__name__}: pass Representation(q), "
            "with a posterior q over an osc.autoencoders.Autoencoder."
        )


def linear_encoding(q: Posterior, x: Float[Tensor, "N *D"], batch_size: int | None = None) -> Encoding:
    r"""The normal distribution of the code of the linearised encoder, without correlations.

    .. math:: \operatorname{var} z = \operatorname{diag}(J_e \Sigma J_e^\top) + \sigma^2(x)

    with the mean of the code linear in the weights, and the variance σ² of a VAE's encoder at the mode; codes that are
    not normal are replaced by normal ones with the same mean and variance.

    Cost: one forward and K backward passes of the encoder, without weight gradients.
    """
    gaussian, model = require_gaussian(q)
    random_encoder = any(name.startswith("encoder.") for block in gaussian.fit.plan.blocks for name in block.names)
    parts = []
    for part in x.split(batch_size or len(x)):
        raw = q.network({"encode": part})
        mean, latent = model.centre(raw), model.spread(raw)
        weight = torch.zeros_like(mean)
        if random_encoder:
            variance = moments(gaussian, {"centre": part}, single_outputs, outputs=mean.shape[1])[1]
            weight = variance.reshape(mean.shape).to(mean)
        parts.append((mean, weight, torch.zeros_like(mean) if latent is None else latent))
    return Encoding.normal(*(torch.cat(each) for each in zip(*parts, strict=True)))


def linear_reconstruction(
    q: Posterior, x: Float[Tensor, "N *D"], samples: int, codes: int | None, generator: torch.Generator | None
) -> Reconstruction:
    r"""Draw from the linear function, f + J(θ_s − θ*) + J_d (z − μ), with z the codes of a VAE.

    J is the Jacobian of the network with respect to its weights and J_d that of the decoder with respect to the code,
    both at the mode. All draws of the weights share the same codes, in antithetic pairs z and 2μ − z, so that neither
    the mean image nor its variance by weights depends on them.

    Cost: one Jacobian-vector product per draw; for a VAE one more for each code dimension.
    """
    gaussian, model = require_gaussian(q)
    f = torch.cat(list(linear_functions(gaussian, x, samples, generator))).to(x)
    slopes, codes = _slopes(gaussian, model, x), CODES if codes is None else codes
    if slopes is None:
        return Reconstruction(f.unsqueeze(1), q.likelihood)
    size, device = (-(-codes // 2), len(slopes), len(x)), drawn_on(x, generator)
    half = torch.randn(size, generator=generator, dtype=x.dtype, device=device).to(x.device)
    noise = torch.cat([half, -half])[:codes]
    offsets = torch.einsum("zkn,kn...->zn...", noise, slopes)
    return Reconstruction(f.unsqueeze(1) + offsets, q.likelihood, shared=True)


def marginal_reconstruction(q: Posterior, x: Float[Tensor, "N *D"]) -> MarginalReconstruction:
    r"""The exact variance of each pixel of the linear function.

    .. math:: \operatorname{var} x' = \operatorname{diag}(J \Sigma J^\top)
              + \operatorname{diag}(J_d \operatorname{diag}(\sigma^2) J_d^\top) + \text{noise}

    Raises:
        ValueError: pixels that are not real-valued.

    Cost: one forward pass and one backward pass for each output of the decoder, without weight gradients.
    """
    (gaussian, model), likelihood = require_gaussian(q), q.likelihood
    if not likelihood.real_valued:
        raise ValueError(
            f"exact=True is for real-valued pixels, and {type(likelihood).__name__} has a nonlinear link: leave it out "
            "(draws pass through the link), or use osc.functional_variance for the logits."
        )
    link = choose_link(likelihood, None)
    units = partial(interacting_outputs, likelihood) if likelihood.needs_covariance(link) else single_outputs
    f, covariance = moments(gaussian, x, units)
    weight = likelihood.marginal(f, covariance, link, noise=False).variance
    slopes = _slopes(gaussian, model, x)
    latent = torch.zeros_like(weight)
    if slopes is not None:
        latent = torch.stack([likelihood.distribution(f + s).mean - likelihood.distribution(f).mean for s in slopes])
        latent = latent.square().sum(0)
    return MarginalReconstruction(f, likelihood, likelihood.marginal(f, covariance, link), weight, latent)


def _slopes(q: Gaussian, model: Autoencoder, x: Tensor) -> Float[Tensor, "K N *C"] | None:
    """σ_k ∂d/∂z_k at the mean code of each datum; None where codes are not random."""
    raw = q.network({"encode": x})
    mean, spread = model.centre(raw), model.spread(raw)
    if spread is None:
        return None
    found = []
    with recording():
        for number in range(mean.shape[1]):
            direction = torch.zeros_like(mean)
            direction[:, number] = spread[:, number].sqrt()
            found.append(forward_derivative(lambda z: q.network({"decode": z}), mean, direction).detach())
    return torch.stack(found)


def require_gaussian(q: Posterior) -> tuple[Gaussian, Autoencoder]:
    """Return the posterior and its network, or raise TypeError if it is not Gaussian."""
    if not isinstance(q, Gaussian):
        raise TypeError(
            f"via='linearised' needs a Gaussian posterior over the weights, and this is a {type(q).__name__}: pass "
            "via='sampled', or fit one with osc.laplace or osc.autoencoders.LaplacianAutoencoder.post_hoc."
        )
    assert isinstance(q.model, Autoencoder)
    return q, q.model
