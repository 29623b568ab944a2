"""Autoencoders: an encoder and a decoder in one network; each half can be called alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from osculate.autoencoders.codes import CodePosterior, CodePrior, GaussianCodes, SigmoidCodes, SparseBeta, as_code_prior
from osculate.networks import conv_coders, mlp_coders
from osculate.posteriors import Gaussian, Posterior
from osculate.registry import lookup

#: Meanings of the arguments that must be at least 1.
COUNTED = {
    "samples": "sample",
    "codes": "code for each network",
    "batch_size": "input at a time",
    "n": "image",
    "places": "image along each side",
}


class Autoencoder(nn.Module):
    r"""f_θ(x) = d(e(x)): one network for every method and posterior, with the targets y = x.

    Args:
        encoder: e, images or vectors (N, \*D) to codes (N, K).
        decoder: d, codes back to (N, \*D), on the scale of the likelihood's f (logits for ``Bernoulli``); with twice
            the channels (axis 1) for ``HeteroscedasticGaussian(class_axis=1)``, where each pixel has a variance.

    Raises:
        TypeError: the encoder or decoder is not a module.

    >>> net = Autoencoder(nn.Linear(6, 2), nn.Linear(2, 6))
    >>> x = torch.randn(4, 6)
    >>> done = osc.train(osc.methods.MAP(net, osc.likelihoods.Gaussian()), (x, x), epochs=1, progress=False)
    >>> net(x).shape, net(encode=x).shape, net(decode=torch.zeros(3, 2)).shape
    (torch.Size([4, 6]), torch.Size([4, 2]), torch.Size([3, 6]))
    """

    #: Attributes that are known once the module has been called.
    learned_sizes: ClassVar[tuple[str, ...]] = ("latent",)
    #: Posteriors have the network as their mean: codes are those of networks, which the linear model does not have.
    mean_is_network: ClassVar[bool] = True

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
        """Return the reconstruction of x, the encoder's output for ``encode``, the image of the code ``decode``, or the
        mean code of ``centre``.

        Raises:
            RuntimeError: the encoder or decoder fails; the message names the shape and type of its input.
            ValueError: not exactly one argument is given, a code is not (N, K), or a reconstruction has another shape.
        """
        given = [value for value in (x, encode, decode, centre) if value is not None]
        if len(given) != 1:
            raise ValueError(
                f"an autoencoder takes exactly one of x, encode=x, decode=z and centre=x, got {len(given)} of them."
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
        return self._passed("decoder", "codes", z, "encoder and decoder need the same code size and floating type")

    def _passed(self, part: str, what: str, given: Tensor, way_out: str) -> Any:
        """The output of encoder or decoder, or an error with the shape and type of the input."""
        try:
            return getattr(self, part)(given)
        except RuntimeError as error:
            if type(error) is not RuntimeError:  # subclasses, such as out of memory, have their own messages
                raise
            if not given.is_floating_point():
                way_out = "pass x.float(), divided by 255 if the network expects values up to 1"
            elif "dtype" in str(error) and part == "encoder":
                way_out = "convert network and data to one type, with x.float() or x.double()"
            shape = tuple(given.shape[1:])
            raise RuntimeError(
                f"the {part} failed for {what} of shape {shape} and {given.dtype} ({error}): {way_out}."
            ) from error

    def code(self, x: Shaped[Tensor, "N *D"]) -> Float[Tensor, "N K"]:
        """The output of the encoder.

        Raises:
            TypeError: the output is not a tensor.
            ValueError: the output is not one vector per input.
        """
        z = self._passed("encoder", "inputs", x, "resize them to the shape it was built for")
        if not isinstance(z, Tensor):
            raise TypeError(
                f"the encoder returns a {type(z).__name__}, and a code is one tensor: join means and log variances "
                "with torch.cat([mean, log_variance], 1)."
            )
        if z.ndim != 2:
            raise ValueError(
                f"the encoder returns codes of shape {tuple(z.shape[1:])}, and a code is a vector: end it with "
                "nn.Flatten()."
            )
        self.latent = z.shape[1]
        return z

    def code_size(self) -> int:
        """K, from an earlier call of the encoder or else the input size of the decoder's first layer.

        Raises:
            ValueError: the encoder has not been called, and the decoder does not begin with a linear layer.
        """
        if self.latent is None:
            first = next((m for m in self.decoder.modules() if any(True for _ in m.parameters(recurse=False))), None)
            if not isinstance(first, nn.Linear):
                raise ValueError(
                    "the code size is unknown before the encoder has been called: encode an image first, or set "
                    "net.latent."
                )
            self.latent = first.in_features
        return self.latent

    def require_curvature(self, names: Iterable[str]) -> None:
        """Raise ValueError if f_θ has no curvature in a named parameter; an :class:`Autoencoder` accepts all."""

    def centre(self, z: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        """The mean of the code, from the encoder's output."""
        return z

    def spread(self, z: Float[Tensor, "N K"]) -> Float[Tensor, "N K"] | None:
        """The variance of the code given the weights, from the encoder's output; None for a deterministic code."""
        return None

    def drawn_code(self, z: Float[Tensor, "N R"], generator: torch.Generator | None = None) -> Float[Tensor, "N K"]:
        """A code drawn from the encoder's output; deterministic for an :class:`Autoencoder`."""
        return self.centre(z)


def require_unrefined(q: Posterior) -> None:
    """Raise ValueError if the mean of a posterior belongs to the linear model, which has no encoder and decoder."""
    if isinstance(q, Gaussian) and q.offset is not None:
        raise ValueError(
            "this posterior is refined: its mean belongs to the linear model of the whole network, and codes are those "
            "of networks around the mode. Pass the posterior that osc.laplace or LaplacianAutoencoder.post_hoc gave."
        )


def require_inputs(x: Any) -> None:
    """Check that ``x`` is a tensor (N, …) of finite floating-point values.

    Raises:
        TypeError: not a tensor, or not of a floating type.
        ValueError: no batch axis, no inputs, or NaN or infinite values.
    """
    require_floats(x)
    if x.ndim < 2:
        raise ValueError(f"the inputs have shape {tuple(x.shape)}, without a batch axis: pass x.unsqueeze(0).")
    if not len(x):
        raise ValueError("there are no inputs: pass a tensor with at least one row.")
    if not bool(torch.isfinite(x).all()):
        raise ValueError("the inputs contain NaN or infinite values; impute them with osc.tasks.imputation.")


def require_floats(x: Any) -> None:
    """Raise TypeError unless ``x`` is a tensor of a floating type."""
    if not isinstance(x, Tensor):
        raise TypeError(f"the inputs are a {type(x).__name__}: pass a tensor, such as torch.from_numpy(x).")
    if not x.is_floating_point():
        raise TypeError(
            f"the inputs are of {x.dtype}, and networks take floating-point values: pass x.float(), divided by 255 if "
            "the network expects values up to 1."
        )


def require_counts(**numbers: int | None) -> None:
    """Raise ValueError if a named number is given and less than 1."""
    for name, value in numbers.items():
        if value is not None and value < 1:
            raise ValueError(f"at least one {COUNTED[name]} is needed, got {name}={value}.")


def require_fit(found: Tensor, x: Tensor) -> None:
    """Raise ValueError unless a reconstruction has the shape of its input, or that with twice the channels."""
    shape, wanted = tuple(found.shape[1:]), tuple(x.shape[1:])
    if shape != wanted and shape != (2 * wanted[0], *wanted[1:]):
        raise ValueError(
            f"the decoder returns {shape} for inputs {wanted}: it must return the shape of the inputs, or twice the "
            "channels for means and log variances."
        )


class VAE(Autoencoder):
    r"""A variational autoencoder, with random codes z ~ q(z|x) and a prior p(z). [kingma2014]

    By default q(z|x) = N(μ(x), diag σ²(x)) and p(z) = N(0, I), and e returns μ and log σ² side by side. As a network,
    f_θ(x) = d(E z). Methods train it on the evidence lower bound, with one code drawn for each datum and the divergence

    .. math:: \operatorname{KL}(q(z|x) \,\|\, p(z)) \quad\text{or, without closed form,}\quad
              \log q(z|x) - \log p(z).

    Args:
        encoder: Maps (N, \*D) to the parameters of q: (N, 2K) for a Gaussian, μ first.
        decoder: Maps codes (N, K) to the likelihood's parameters, (N, \*D): logits, without a sigmoid, for a Bernoulli.
        posterior: q(z|x); Gaussian by default.
        prior: p(z), or the name of one: "normal", "beta" (codes between 0 and 1), "two_normals".

    Raises:
        TypeError: encoder or decoder is not a module, or ``posterior`` or ``prior`` is not one of codes.
        ValueError: an unknown name, or a prior of codes between 0 and 1 with unbounded codes.

    >>> net = VAE(nn.Linear(6, 4), nn.Linear(2, 6))
    >>> f, divergence = net(draw=torch.randn(5, 6))
    >>> f.shape, divergence.shape
    (torch.Size([5, 6]), torch.Size([5]))
    """

    #: True if training draws codes and subtracts their divergence.
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
                f"{self.prior!r} is for codes between 0 and 1, and {type(self.posterior).__name__} are unbounded: pass "
                "posterior=SigmoidCodes()."
            )

    def forward(
        self, x: Shaped[Tensor, "N *D"] | None = None, *, draw: Shaped[Tensor, "N *D"] | None = None, **other: Any
    ) -> Any:
        """Outputs as for :class:`Autoencoder`; for ``draw``, images of drawn codes and divergences from the prior."""
        if draw is None:
            return super().forward(x, **other)
        h = self.code(draw)
        known = self.posterior.divergence(h, self.prior)
        if known is not None:
            return self._image(self.posterior.codes(h)[0]), known
        z, ratio = self.posterior.draw(h, self.prior)
        own = torch.as_tensor(self.posterior.extra_loss(h, self.prior))
        return self._image(z[0]), ratio[0] + (own - own.detach())  # adds to the gradient, not to the value

    def code(self, x: Shaped[Tensor, "N *D"]) -> Float[Tensor, "N R"]:
        """The encoder's output, the parameters of q(z|x).

        Raises:
            ValueError: the posterior of codes does not take that many.
        """
        h = super().code(x)
        self.latent = self.posterior.latent(h.shape[1])
        return h

    def extra_repr(self) -> str:
        """The prior, which is not a module."""
        return f"prior={self.prior!r}"

    @property
    def closed_form(self) -> bool:
        """True if the divergence of the codes from their prior has a closed form."""
        return self.posterior.divergence(torch.zeros(1, 2), self.prior) is not None

    @property
    def point_estimated(self) -> tuple[str, ...]:
        """The parameters that posteriors leave out: those of the encoder and of the codes, which are not in p(x|z)."""
        return tuple(name for name, _ in self.named_parameters() if not name.startswith("decoder."))

    def require_curvature(self, names: Iterable[str]) -> None:
        """Raise ValueError if the encoder is named: f_θ(x) = d(E z) does not depend on the variance of its codes."""
        if set(names) & set(self.point_estimated):
            raise ValueError(
                "the weights of the code variance of a VAE have no curvature. Fit the decoder alone: "
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


#: Builders of an encoder and a decoder from the shape of one input, by name.
REGISTRY: Mapping[str, Callable[..., tuple[nn.Module, nn.Module]]] = {
    "mlp_autoencoder": mlp_coders,
    "conv_autoencoder": conv_coders,
}


def build(
    name: str, input_shape: Sequence[int], *, variational: bool = False, prior: str = "normal", **options: object
) -> Autoencoder:
    """Build an autoencoder by its name.

    Args:
        name: A key of :data:`REGISTRY`.
        input_shape: Shape of one input, without the batch axis.
        variational: Build a :class:`VAE`.
        prior: Prior of the codes of a VAE, a key of ``CODE_PRIORS``.
        **options: Options of ``osc.networks.mlp_coders`` or ``conv_coders``, for example ``latent=8``.

    Raises:
        ValueError: an unknown name, or an input shape that the networks cannot take.

    >>> build("mlp_autoencoder", (1, 4, 4), hidden=[8])(torch.zeros(3, 1, 4, 4)).shape
    torch.Size([3, 1, 4, 4])
    """
    coders = lookup("autoencoder", name, REGISTRY)
    if variational:
        return VAE(*coders(tuple(input_shape), codes=2, **options), prior=prior)
    return Autoencoder(*coders(tuple(input_shape), **options))
