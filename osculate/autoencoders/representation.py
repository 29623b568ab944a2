"""What any posterior over an autoencoder says about codes, reconstructions and new images."""

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import chain, islice
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from osculate.autoencoders.autoencoder import VAE, Autoencoder, require_fit
from osculate.autoencoders.checks import require_inputs, require_one_posterior_of_codes, require_some
from osculate.autoencoders.drawn import Encoding, Reconstruction
from osculate.autoencoders.linearised import linear_encoding, linear_reconstruction, marginal_reconstruction
from osculate.posteriors import Gaussian, Posterior, Sampled
from osculate.posteriors._base import as_posterior
from osculate.predictive.sampled import warn_if_far_worse
from osculate.registry import choose

#: Inputs that are encoded at a time for the moments of their codes.
ROWS = 500
#: The computations of codes and images: by drawn networks, or by the linearised one.
WAYS = ("sampled", "linearised")


class NewCodes:
    """The prior of a VAE without data, else the Gaussian with the moments of the codes of some data at the mode.

    Args:
        posterior: over the network.
        model: the network.
        data: x, encoded when codes are drawn for the first time; None for none.
    """

    def __init__(self, posterior: Posterior, model: Autoencoder, data: Shaped[Tensor, "N *D"] | None) -> None:
        self._posterior, self._model, self._data = posterior, model, data

    def draw(self, n: int, generator: torch.Generator | None) -> Float[Tensor, "n K"]:
        """Codes, on the device of the generator.

        Raises:
            ValueError: no data, and no VAE; a VAE that does not say how long its codes are.
        """
        on = torch.device("cpu") if generator is None else generator.device
        if self._data is None:
            if not isinstance(self._model, VAE):
                raise ValueError(
                    "an autoencoder does not say how its codes are distributed: make the representation with codes=x, "
                    "data whose codes are like those wanted."
                )
            return self._model.prior.sample(n, self._model.code_size(), generator)
        mean, root = self._moments
        white = torch.randn(n, len(mean), generator=generator, dtype=mean.dtype, device=on).cpu()
        return mean + white @ root.T

    @cached_property
    def _moments(self) -> tuple[Float[Tensor, " K"], Float[Tensor, "K K"]]:
        """The mean, and the Cholesky factor of the covariance."""
        assert self._data is not None
        require_inputs(self._data)
        network = self._posterior.network
        parts = self._data.split(ROWS)
        raw = [network({"encode": part.to(network.device, network.dtype)}).detach() for part in parts]
        z = self._model.centre(torch.cat(raw)).double().cpu()
        centred = z - z.mean(0)
        covariance = centred.T @ centred / max(1, len(z) - 1) + 1e-9 * torch.eye(z.shape[1], dtype=z.dtype)
        return z.mean(0), torch.linalg.cholesky(covariance)


class Representation:
    r"""A stochastic representation: codes and images of networks that are drawn from a posterior.

    The same for a plain autoencoder (one network), a VAE, dropout, an ensemble, and any Laplace posterior, post-hoc or
    online: they differ in where the draws come from.

    Args:
        q: a posterior over an :class:`Autoencoder` or :class:`VAE`, or what ``osc.train`` returned.
        codes: data whose codes say where those of new images are to be drawn (:meth:`generate`); a VAE needs none.

    Raises:
        TypeError: no posterior, or one over another network.
        ValueError: a Gaussian one over the encoder of a VAE, or one whose draws differ in how codes are distributed.

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
        require_one_posterior_of_codes(self.posterior)
        self.model: Autoencoder = model
        self._prior = NewCodes(self.posterior, model, codes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.posterior!r})"

    def _draws(self, samples: int, generator: torch.Generator | None) -> Iterator[Callable[[Any], Tensor]]:
        """Networks; the one at the mode where nothing is random."""
        require_some(samples=samples)
        if not isinstance(self.posterior, Sampled):
            yield self.posterior.network
            return
        yield from self.posterior.draws(samples, generator)

    def _always(self, samples: int, generator: torch.Generator | None) -> Iterator[Callable[[Any], Tensor]]:
        """As many networks as are asked for, from the first again where there are fewer."""
        require_some(samples=samples)
        rounds = iter(lambda: self._draws(samples, generator), None)
        yield from islice(chain.from_iterable(rounds), samples)

    def _ready(self, x: Shaped[Tensor, "*N"]) -> Float[Tensor, "N *D"]:
        """Inputs on the device and in the type of the network, refused where they are not finite or none."""
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
        r"""The codes of some data.

        With ``via="linearised"`` no network is drawn: the mean of the code is linear in the weights,

        .. math:: \operatorname{var} z = \operatorname{diag}(J_e \Sigma J_e^\top) + \sigma^2(x)

        exactly, with any structure of the posterior Σ. The variance σ² that a VAE's encoder gives is that at the mode.
        Codes that are not normal, such as those between 0 and 1, are then replaced by normal ones of the same moments.

        Args:
            x: inputs.
            samples: S, networks drawn; one draw serves all inputs.
            generator: for the draws.
            batch_size: inputs at a time; by default all at once.
            via: "sampled", or "linearised" for a Gaussian posterior, where ``samples`` and ``generator`` do nothing.

        Returns:
            The distribution of the codes (N, K), with its variance by weights and by the encoder; "linearised", a
            normal one.

        Raises:
            TypeError: inputs that are not floating, or "linearised" with a posterior that is not Gaussian.
            ValueError: no inputs, inputs that are not finite, an unknown ``via``.

        Cost: S forward passes of the encoder. "linearised": one, and K backward passes without weight gradients.

        >>> from osculate.autoencoders import Autoencoder, Representation
        >>> x, net = torch.randn(30, 6), Autoencoder(nn.Linear(6, 2), nn.Linear(2, 6))
        >>> q = osc.laplace(net, osc.likelihoods.Gaussian(0.5), (x, x), structure="kron", prior=1.0)
        >>> Representation(q).encode(x, via="linearised").weight_variance.shape
        torch.Size([30, 2])
        """
        choose("way to codes", via, WAYS)
        require_some(samples=samples, batch_size=batch_size)
        x = self._ready(x)
        if via == "linearised":
            return linear_encoding(self.posterior, x, batch_size)
        if isinstance(self.posterior, Gaussian):
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
        r"""The images that the networks make of some data.

        With ``via="linearised"`` the network is linear in its weights, and its decoder in a VAE's code:

        .. math:: f_s = f + J(\theta_s - \theta^*) + J_d (z_s - \mu), \qquad z_s \sim \mathcal N(\mu, \sigma^2(x))

        with the same codes for all draws of the weights, so that the two variances do not mix.

        Args:
            x: inputs.
            samples: W, networks drawn; one draw serves all inputs.
            codes: Z, codes drawn for each of them where the encoder's are random; by default 2, ``samples`` where the
                weights are not random, and 20 with "linearised".
            generator: for the draws.
            via: "sampled", or "linearised" for a Gaussian posterior.
            exact: with "linearised", the exact variance of each real-valued pixel in place of draws, without how pixels
                vary together; ``samples``, ``codes`` and ``generator`` then do nothing.

        Returns:
            The distribution of the reconstructions, with its variance by weights, by codes and by noise.

        Raises:
            TypeError: inputs that are not floating, or "linearised" with a posterior that is not Gaussian.
            ValueError: no inputs, inputs that are not finite, no sample, an unknown ``via``, or ``exact`` for networks
                that are not linearised or pixels that are not real-valued.

        Cost: W passes of the encoder, and W Z of the decoder; the images of all draws are held. "linearised": W
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
        require_some(samples=samples, codes=codes)
        return linear_reconstruction(self.posterior, x, samples, codes, generator)

    @torch.no_grad()
    def represent(
        self,
        x: Shaped[Tensor, "N *D"],
        samples: int = 100,
        codes: int | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Encoding, Reconstruction]:
        """Codes and images of the same networks, in one pass: :meth:`encode` and :meth:`reconstruct` together.

        With one generator, inputs that come in several calls meet the same weights in each, whatever their number
        (masks of dropout excepted, which each datum has for itself).

        Args:
            x: inputs.
            samples: as of :meth:`reconstruct`.
            codes: as of :meth:`reconstruct`.
            generator: for the draws.

        Raises:
            ValueError: no inputs, or inputs that are not finite.
        """
        x = self._ready(x)
        if isinstance(self.posterior, Gaussian):
            warn_if_far_worse(self.posterior)
        require_some(samples=samples, codes=codes)
        codes = codes or (2 if isinstance(self.posterior, Sampled) else samples)
        noise = self._code_noise(generator)
        passes = [self._pass(draw, x, codes, noise) for draw in self._draws(samples, generator)]
        each, images = (list(part) for part in zip(*passes, strict=True))
        return self._encoding(each), Reconstruction(torch.stack(images), self.posterior.likelihood)

    @torch.no_grad()
    def decode(
        self, z: Shaped[Tensor, "N *K"], samples: int = 100, generator: torch.Generator | None = None
    ) -> Reconstruction:
        """The images that the networks make of given codes.

        Args:
            z: codes.
            samples: S, networks drawn; one draw serves all codes.
            generator: for the draws.

        Returns:
            The distribution of the images, with its variance by weights and by noise; the codes are not random.

        Raises:
            ValueError: no codes, codes that are not finite or no (N, K).

        Cost: S passes of the decoder; the images of all draws are held.
        """
        z = self._ready(z)
        latent = self.model.latent
        if z.ndim != 2 or (latent is not None and z.shape[1] != latent):
            wanted = "(N, K)" if latent is None else f"(N, {latent})"
            raise ValueError(f"the codes have shape {tuple(z.shape)}, and this network decodes codes {wanted}.")
        if isinstance(self.posterior, Gaussian):
            warn_if_far_worse(self.posterior)
        images = [draw({"decode": z}).unsqueeze(0) for draw in self._draws(samples, generator)]
        return Reconstruction(torch.stack(images), self.posterior.likelihood)

    def _of(self, draw: Callable[[Any], Tensor]) -> Autoencoder:
        """The module of a drawn network: its own in an ensemble, whose members differ in how codes are distributed."""
        return getattr(getattr(draw, "func", draw), "module", self.model)

    def _encoding(self, each: list[tuple[Autoencoder, Tensor]]) -> Encoding:
        """Of what the encoder of each network gives."""
        random = [(model.posterior, h) for model, h in each if isinstance(model, VAE)]
        return Encoding.drawn(random) if random else Encoding(torch.stack([model.centre(h) for model, h in each]))

    def _pass(
        self, draw: Callable[[Any], Tensor], x: Tensor, codes: int, noise: torch.Generator | None
    ) -> tuple[tuple[Autoencoder, Tensor], Float[Tensor, "Z N *D"]]:
        """What the encoder of one network gives, and the images of as many codes; of one where these are not random."""
        model, raw = self._of(draw), draw({"encode": x})
        every = [model.drawn_code(raw, noise) for _ in range(codes if isinstance(model, VAE) else 1)]
        images = torch.stack([draw({"decode": z}) for z in every])
        require_fit(images[0], x)
        return (model, raw), images

    def _code_noise(self, generator: torch.Generator | None) -> torch.Generator | None:
        """A generator for codes alone: how many of them are drawn must not change the weights that follow."""
        if not isinstance(self.model, VAE):
            return None
        on = torch.device("cpu") if generator is None else generator.device
        return torch.Generator(on).manual_seed(int(torch.randint(2**62, (), generator=generator, device=on)))

    def networks(
        self, samples: int, generator: torch.Generator | None = None
    ) -> Iterator[Callable[[Float[Tensor, "N *D"]], Float[Tensor, "N *D"]]]:
        """Functions from images to their reconstructions, without noise, each a network of its own.

        Always as many as are asked for: the members of an ensemble in turn, the one network there is again and again.
        Where codes are random, each call draws new ones.

        Args:
            samples: S.
            generator: for the draws.
        """

        def reconstruct(draw: Callable[[Any], Tensor], x: Tensor) -> Tensor:
            f = self._pass(draw, self._ready(x), 1, generator)[1][0]
            return self.posterior.likelihood.distribution(f).mean

        for draw in self._always(samples, generator):
            yield partial(reconstruct, draw)

    def log_prob(
        self, x: Shaped[Tensor, "N *D"], samples: int = 100, generator: torch.Generator | None = None
    ) -> Float[Tensor, " N"]:
        r"""How well the networks reconstruct x, in nats.

        .. math:: \log \operatorname{E}_{\theta, z \sim q(z \mid x)} p(x \mid f_\theta(z))

        For a VAE too, whose marginal density over its prior of codes this is not.

        Args:
            x: inputs.
            samples: as of :meth:`reconstruct`.
            generator: for the draws.

        Raises:
            ValueError: no inputs, inputs that are not finite, or reconstructions of another shape.

        Cost: that of :meth:`reconstruct`.
        """
        return self.reconstruct(x, samples, generator=generator).log_prob(self._ready(x))

    @torch.no_grad()
    def generate(self, n: int, generator: torch.Generator | None = None) -> Float[Tensor, "n *D"]:
        """New images, each of a code and a network drawn anew, without noise.

        The codes are drawn from the prior of a VAE, else from the Gaussian with the moments of the codes of ``codes``.

        Args:
            n: how many.
            generator: for the draws.

        Raises:
            ValueError: fewer than one; no such data, and no VAE; a VAE whose number of codes cannot be told.

        Cost: n passes of the decoder, each of one code; the first time a pass of the encoder over ``codes``.
        """
        require_some(n=n)
        network = self.posterior.network
        z = self._prior.draw(n, generator).to(network.device, network.dtype)
        images = [draw({"decode": z[k : k + 1]}) for k, draw in enumerate(self._always(n, generator))]
        return self.posterior.likelihood.distribution(torch.cat(images)).mean


def require_representation(r: Any, what: str) -> None:
    """Refuse what is none, a posterior above all.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(r, Representation):
        raise TypeError(
            f"{what} is a {type(r).__name__}, not an osc.autoencoders.Representation: make one as Representation(q), "
            "with a posterior q over an osc.autoencoders.Autoencoder."
        )
