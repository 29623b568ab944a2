"""q(z|x) by a normalising flow: an invertible network of noise, whose density is known."""

from typing import Any

from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

from osculate.autoencoders.code_posteriors import CodePosterior, require_numbers
from osculate.autoencoders.code_priors import CodePrior
from osculate.checks import require_whole


class FlowCodes(CodePosterior):
    r"""z = g_h(ε) with g_h invertible: log q(z|h) = log N(ε; 0, I) − log |det ∂g_h/∂ε|. [rezende2015]

    Affine couplings of the package zuko, the extra ``flows``: density and draws in one pass.

    Args:
        latent: K, at least 2.
        numbers: of the encoder for each datum.
        transforms: couplings.
        hidden: units of the two hidden layers of each.

    Raises:
        ImportError: zuko is not installed.
        ValueError: a size that is not positive, or a code of one number, which nothing can be coupled with.
    """

    def __init__(self, latent: int, numbers: int, transforms: int = 4, hidden: int = 64) -> None:
        super().__init__()
        for name, value in {"numbers": numbers, "transforms": transforms, "hidden": hidden}.items():
            require_whole(name, value)
        if latent < 2:
            raise ValueError(f"a flow couples the numbers of a code, and latent is {latent}: take at least 2.")
        self._latent, self._numbers = latent, numbers
        self.flow = _zuko().flows.MAF(
            latent, numbers, transforms=transforms, hidden_features=(hidden, hidden), passes=2
        )

    def latent(self, numbers: int) -> int:
        require_numbers(self, numbers, self._numbers)
        return self._latent

    def noise(self, h: Float[Tensor, "N R"]) -> int:
        return self._latent

    def transform(self, h: Float[Tensor, "N R"], noise: Float[Tensor, "S #N E"]) -> Float[Tensor, "S N K"]:
        return self.flow(h).transform.inv(noise.expand(-1, len(h), -1))

    def distribution(self, h: Float[Tensor, "N R"]) -> Any:
        return self.flow(h)

    def __repr__(self) -> str:
        """Its sizes: a flow of zuko draws random numbers when it is printed."""
        sizes = [f"{tuple(p.shape)}" for p in self.parameters() if p.ndim == 2]
        return f"FlowCodes(latent={self._latent}, weights={', '.join(sizes)})"

    def draw(
        self, h: Float[Tensor, "N R"], prior: CodePrior, samples: int = 1, path_only: bool = False
    ) -> tuple[Float[Tensor, "S N K"], Float[Tensor, "S N"]]:
        """Codes, and log q − log p, in one pass unless ``path_only`` asks for another."""
        if path_only:
            return super().draw(h, prior, samples, path_only)
        z, density = self.distribution(h).rsample_and_log_prob((samples,))
        return z, density - prior.over(z).log_prob(z)


def _zuko() -> Any:
    """The package, whose import stops torch's distributions from checking what they are given: they go on doing so."""
    checks = Distribution._validate_args
    try:
        import zuko  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(
            "FlowCodes needs the package zuko: pip install 'osculate[flows]', or take SemiImplicitCodes."
        ) from error
    finally:
        Distribution.set_default_validate_args(checks)
    return zuko
