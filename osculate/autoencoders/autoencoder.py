"""An encoder and a decoder as one network, of which either half can be called."""

from collections.abc import Iterable

from jaxtyping import Float, Shaped
from torch import Tensor, nn


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
            ValueError: it is no vector for each input.
        """
        try:
            z = self.encoder(x)
        except RuntimeError as error:
            raise _told(error, "encoder", "inputs", x, "resize them to what it was built for") from error
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


def _told(error: RuntimeError, part: str, what: str, given: Tensor, way_out: str) -> RuntimeError:
    """The same kind of error, with what the part was given; as it is where memory or a rule of torch's is missing."""
    if type(error) is not RuntimeError:
        return error
    if not given.is_floating_point():
        way_out = "pass x.float(), divided by 255 where it was built for values up to 1"
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
    r"""The same with q(z|x) = N(μ(x), diag σ²(x)) and p(z) = N(0, I); e gives μ and log σ² side by side. [kingma2014]

    As a network, f_θ(x) = d(μ(x)).

    Args:
        encoder: (N, \*D) to (N, 2K), μ first.
        decoder: codes (N, K) back to (N, \*D).
    """

    def code(self, x: Shaped[Tensor, "N *D"]) -> Float[Tensor, "N twoK"]:
        """μ and log σ² side by side.

        Raises:
            ValueError: an odd number of them.
        """
        z = super().code(x)
        if z.shape[1] % 2:
            raise ValueError(
                f"the encoder of a VAE gives a mean and a log variance for each code, not {z.shape[1]} numbers."
            )
        self.latent = z.shape[1] // 2
        return z

    def require_curvature(self, names: Iterable[str]) -> None:
        """Refuse one over the encoder: the curvature of f_θ(x) = d(μ(x)) knows nothing of log σ²(x).

        Raises:
            ValueError: it is one.
        """
        if any(name.startswith("encoder.") for name in names):
            raise ValueError(
                "the weights behind the log variances of a VAE's code have no curvature. Fit its decoder alone: "
                "osc.laplace(model, likelihood, (x, x), subset=['decoder'])."
            )

    def centre(self, z: Float[Tensor, "N twoK"]) -> Float[Tensor, "N K"]:
        """μ."""
        return z.chunk(2, 1)[0]

    def spread(self, z: Float[Tensor, "N twoK"]) -> Float[Tensor, "N K"]:
        """σ²."""
        return z.chunk(2, 1)[1].exp()
