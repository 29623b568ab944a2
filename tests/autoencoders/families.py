"""Every kind of q(z|x), small: two numbers a code, of four that the encoder gives."""

from collections.abc import Callable

from osculate.autoencoders import (
    AdversarialCodes,
    CodePosterior,
    FlowCodes,
    GaussianCodes,
    SemiImplicitCodes,
    SigmoidCodes,
)

FAMILIES: dict[str, Callable[[], CodePosterior]] = {
    "gaussian": GaussianCodes,
    "sigmoid": SigmoidCodes,
    "flow": lambda: FlowCodes(2, 4, transforms=2, hidden=8),
    "semi-implicit": lambda: SemiImplicitCodes(2, 4, hidden=8, noise=3, mixtures=5),
    "adversarial": lambda: AdversarialCodes(2, 4, hidden=8, noise=3),
}
#: Of these the density is known.
EXPLICIT = ("gaussian", "sigmoid", "flow")
