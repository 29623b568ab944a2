"""An encoder and a decoder as one network, of which either half can be called."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from osculate.autoencoders.code_posteriors import CodePosterior, GaussianCodes, SigmoidCodes
from osculate.autoencoders.code_priors import CodePrior, SparseBeta, as_code_prior
from osculate.networks import conv_coders, mlp_coders
from osculate.registry import lookup


class Autoencoder(nn.Module):
    r"""f_θ(x) = d(e(x)): one network for every method and posterior, with the targets y = x.

    Args:
        encoder: e, images or vectors (N, \*D) to codes (N, K).
        decoder: d, codes back to (N, \*D), on the scale of the likelihood's f (logits for ``Bernoulli``); with twice
            the channels (axis 1) for ``HeteroscedasticGaussian(class_axis=1)``, where each pixel has a variance.

    Raises:
        TypeError: one of them is no module.

    >>> net = Autoencoder(nn.Linear(6, 2), nn.Linear(2, 6))
    >>> x = torch.randn(4, 6)
    >>> done = osc.train(osc.methods.MAP(net, osc.likelihoods.Gaussian()), (x, x), epochs=1, progress=False)
    >>> net(x).shape, net(encode=x).shape, net(decode=torch.zeros(3, 2)).shape
    (torch.Size([4, 6]), torch.Size([4, 2]), torch.Size([3, 6]))
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        for name, part in (("encoder", encoder), ("decoder", decoder)):
            if not isinstance(part, nn.Module):
                raise TypeError(f"the {name} must be a torch.nn.Module, got {type(part).__name__}.")
        self.encoder, self.decoder = encoder, decoder
        #: K, known once the encoder has been called.
        self.latent: int | None = None

    def forward(
        self,
        x: Shaped[Tensor, "N *D"] | None = None,
        *,
        encode: Shaped[Tensor, "N *D"] | None = None,
        decode: Float[Tensor, "N K"] | None = None,
        centre: Shaped[Tensor, "N *D"] | None = None,
    ) -> Tensor:
        """The reconstruction of x; what the encoder gives for ``encode``, the image of the code ``decode``, or the mean
        code of ``centre``, where one is given.

        Raises:
            RuntimeError: the encoder or the decoder fails at what it is given; the message says what that was.
            ValueError: not exactly one of the four, a code that is no (N, K), or a reconstruction of another shape.
        """
        given = [value for value in (x, encode, decode, centre) if value is not None]
        if len(given) != 1:
            raise ValueError(
                f"an autoencoder is called with x, encode=x, decode=z or centre=x, one of them, not {len(given)}."
            )
        if decode is not None:
            return self._image(decode)
        z = self.code(given[0])
        if encode is not None:
            return z
        if centre is not None:
            return self.centre(z)
        found = self._image(self.centre(z))
        require_fit(found, given[0])
        return found

    def _image(self, z: Float[Tensor, "N K"]) -> Tensor:
        try:
            return self.decoder(z)
        except RuntimeError as error:
            raise _told(
                error, "decoder", "codes", z, "encoder and decoder need one size of code, and one floating type"
            ) from error

    def code(self, x: Shaped[Tensor, "N *D"]) -> Float[Tensor, "N K"]:
        """What the encoder gives.

        Raises:
            TypeError: it is no tensor.
            ValueError: it is no vector for each input.
        """
        try:
            z = self.encoder(x)
        except RuntimeError as error:
            raise _told(error, "encoder", "inputs", x, "resize them to what it was built for") from error
        if not isinstance(z, Tensor):
            raise TypeError(
                f"the encoder gives a {type(z).__name__}, and a code is one tensor: join means and log variances with "
                "torch.cat([mean, log_variance], 1)."
            )
        if z.ndim != 2:
            raise ValueError(
                f"the encoder gives codes of shape {tuple(z.shape[1:])}, and a code is a vector: end it with a Flatten."
            )
        self.latent = z.shape[1]
        return z

    def code_size(self) -> int:
        """K: as the encoder has shown, else as the first layer of the decoder takes it.

        Raises:
            ValueError: neither says it.
        """
        if self.latent is None:
            first = next((m for m in self.decoder.modules() if any(True for _ in m.parameters(recurse=False))), None)
            if not isinstance(first, nn.Linear):
                raise ValueError(
                    "the number of codes is not known before the encoder has been called: encode an image first, or "
                    "set net.latent."
                )
            self.latent = first.in_features
        return self.latent

    def require_curvature(self, names: Iterable[str]) -> None:
        """Refuse a posterior over parameters that f_θ does not depend on: here there are none.

        Args:
            names: of the parameters that the posterior is over.
        """

    def centre(self, z: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        """The mean of the code, from what the encoder gives."""
        return z

    def spread(self, z: Float[Tensor, "N K"]) -> Float[Tensor, "N K"] | None:
        """The variance of the code given the weights, from what the encoder gives; None where it has none."""
        return None

    def drawn_code(self, z: Float[Tensor, "N R"], generator: torch.Generator | None = None) -> Float[Tensor, "N K"]:
        """A code, from what the encoder gives; here it is not random."""
        return self.centre(z)


def _told(error: RuntimeError, part: str, what: str, given: Tensor, way_out: str) -> RuntimeError:
    """The same kind of error, with what the part was given; as it is where memory or a rule of torch's is missing."""
    if type(error) is not RuntimeError:
        return error
    if not given.is_floating_point():
        way_out = "pass x.float(), divided by 255 where it was built for values up to 1"
    elif "dtype" in str(error) and part == "encoder":
        way_out = "give the network and the data one type, with x.float() or x.double()"
    shape = tuple(given.shape[1:])
    return RuntimeError(f"the {part} failed at {what} of shape {shape} and {given.dtype} ({error}): {way_out}.")


def require_fit(found: Tensor, x: Tensor) -> None:
    """Refuse a reconstruction that is neither as large as its input nor, in channels, twice as large."""
    shape, wanted = tuple(found.shape[1:]), tuple(x.shape[1:])
    if shape != wanted and shape != (2 * wanted[0], *wanted[1:]):
        raise ValueError(
            f"the decoder gives {shape} for inputs {wanted}: both must be of one shape, or the decoder's must have "
            "twice the channels, for means and log variances."
        )


class VAE(Autoencoder):
    r"""The same with codes that are random: z ~ q(z|x), and a prior p(z). [kingma2014]

    By default q(z|x) = N(μ(x), diag σ²(x)) and p(z) = N(0, I), and e gives μ and log σ² side by side. As a network,
    f_θ(x) = d(E z). Methods train it on its bound, with a code drawn for each datum and as its divergence

    .. math:: \operatorname{KL}(q(z|x) \,\|\, p(z)) \quad\text{or, without closed form,}\quad
              \log q(z|x) - \log p(z).

    Args:
        encoder: (N, \*D) to the numbers of q: (N, 2K) for a Gaussian, μ first.
        decoder: codes (N, K) to the likelihood's parameters, (N, \*D): logits, no sigmoid, for a Bernoulli.
        posterior: q(z|x); Gaussian by default.
        prior: p(z), or the name of one: "normal", "beta" (codes between 0 and 1), "two_normals".

    Raises:
        TypeError: no modules, or no posterior or prior of codes.
        ValueError: an unknown name, or a prior of codes between 0 and 1 for codes of any size.

    >>> net = VAE(nn.Linear(6, 4), nn.Linear(2, 6))
    >>> f, divergence = net(draw=torch.randn(5, 6))
    >>> f.shape, divergence.shape
    (torch.Size([5, 6]), torch.Size([5]))
    """

    #: Whether training draws codes, and subtracts their divergence.
    draws_codes = True

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        posterior: CodePosterior | None = None,
        prior: str | CodePrior = "normal",
    ) -> None:
        super().__init__(encoder, decoder)
        self.prior = as_code_prior(prior)
        within = isinstance(self.prior, SparseBeta)
        self.posterior = posterior or (SigmoidCodes() if within else GaussianCodes())
        if not isinstance(self.posterior, CodePosterior):
            raise TypeError(f"the posterior of codes must be one of osc.autoencoders, got {self.posterior!r}.")
        if within and not isinstance(self.posterior, SigmoidCodes):
            raise ValueError(
                f"{self.prior!r} is for codes between 0 and 1, and {type(self.posterior).__name__} has codes of any "
                "size: take SigmoidCodes()."
            )

    def forward(
        self,
        x: Shaped[Tensor, "N *D"] | None = None,
        *,
        encode: Shaped[Tensor, "N *D"] | None = None,
        decode: Float[Tensor, "N K"] | None = None,
        centre: Shaped[Tensor, "N *D"] | None = None,
        draw: Shaped[Tensor, "N *D"] | None = None,
    ) -> Any:
        """As of an autoencoder; for ``draw``, the images of drawn codes and the divergence of each from the prior."""
        if draw is None:
            return super().forward(x, encode=encode, decode=decode, centre=centre)
        h = self.code(draw)
        known = self.posterior.divergence(h, self.prior)
        if known is not None:
            return self._image(self.posterior.codes(h)[0]), known
        z, ratio = self.posterior.draw(h, self.prior)
        own = torch.as_tensor(self.posterior.extra_loss(h, self.prior))
        return self._image(z[0]), ratio[0] + (own - own.detach())  # no part of the value, yet it descends with it

    def code(self, x: Shaped[Tensor, "N *D"]) -> Float[Tensor, "N R"]:
        """The numbers of q(z|x).

        Raises:
            ValueError: no code is made of so many.
        """
        h = super().code(x)
        self.latent = self.posterior.latent(h.shape[1])
        return h

    def extra_repr(self) -> str:
        """The prior, which no module stands for."""
        return f"prior={self.prior!r}"

    @property
    def closed_form(self) -> bool:
        """Whether the divergence of codes from their prior has one."""
        return self.posterior.divergence(torch.zeros(1, 2), self.prior) is not None

    @property
    def point_estimated(self) -> tuple[str, ...]:
        """The parameters that posteriors leave out: those of encoder and code, for which the data are no evidence."""
        return tuple(name for name, _ in self.named_parameters() if not name.startswith("decoder."))

    def require_curvature(self, names: Iterable[str]) -> None:
        """Refuse one over the encoder: the curvature of f_θ(x) = d(E z) knows nothing of the spread of codes.

        Raises:
            ValueError: it is one.
        """
        if set(names) & set(self.point_estimated):
            raise ValueError(
                "the weights behind the spread of a VAE's code have no curvature. Fit its decoder alone: "
                "osc.laplace(model, likelihood, (x, x), subset=['decoder'])."
            )

    def centre(self, z: Float[Tensor, "N R"]) -> Float[Tensor, "N K"]:
        """E z."""
        return self.posterior.mean(z)

    def spread(self, z: Float[Tensor, "N R"]) -> Float[Tensor, "N K"]:
        """var z."""
        return self.posterior.variance(z)

    def drawn_code(self, z: Float[Tensor, "N R"], generator: torch.Generator | None = None) -> Float[Tensor, "N K"]:
        """z ~ q(z|x)."""
        return self.posterior.codes(z, generator)[0]


#: What makes an encoder and a decoder from the shape of one input, by name.
REGISTRY: Mapping[str, Callable[..., tuple[nn.Module, nn.Module]]] = {
    "mlp_autoencoder": mlp_coders,
    "conv_autoencoder": conv_coders,
}


def build(
    name: str, input_shape: Sequence[int], *, variational: bool = False, prior: str = "normal", **options: object
) -> Autoencoder:
    """Build an autoencoder by its name.

    Args:
        name: a key of :data:`REGISTRY`.
        input_shape: shape of one input, without the batch axis.
        variational: whether it is a :class:`VAE`.
        prior: of the codes of one, a key of ``CODE_PRIORS``.
        **options: of ``osc.networks.mlp_coders`` or ``conv_coders``, for example ``latent=8``.

    Raises:
        ValueError: a name is unknown, or the networks cannot take inputs of that shape.

    >>> build("mlp_autoencoder", (1, 4, 4), hidden=[8])(torch.zeros(3, 1, 4, 4)).shape
    torch.Size([3, 1, 4, 4])
    """
    coders = lookup("autoencoder", name, REGISTRY)
    if variational:
        return VAE(*coders(tuple(input_shape), codes=2, **options), prior=prior)
    return Autoencoder(*coders(tuple(input_shape), **options))
