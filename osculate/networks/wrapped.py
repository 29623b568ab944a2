"""Networks around a network: one of its outputs, plus a fixed random function, logits divided by a temperature."""

from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from osculate.checks import require_positive
from osculate.inputs import arguments, output_of, part_of
from osculate.parameters import frozen_copy


class Output(nn.Module):
    r"""f(x) = g(x)[output]: one part of what a network returns, for a network that returns several.

    It stands wherever a network stands: in methods, posteriors, ``osc.load`` and the command line. Its parameters are
    those of the network, with ``network.`` in front of their names, and training changes them in place.

    Args:
        network: g, the network itself; not copied.
        output: The part: an index into a tuple or list, a key of a mapping, an attribute (the field of a named tuple or
            of the output of a Hugging Face model), or the path of a part of a part, such as "hidden_states.0".

    Raises:
        TypeError: ``network`` is not a module, or ``output`` neither an index nor a name.

    >>> lstm = nn.LSTM(3, 5, batch_first=True)                # returns f, (h, c)
    >>> Output(lstm, 0)(torch.zeros(4, 7, 3)).shape
    torch.Size([4, 7, 5])
    """

    def __init__(self, network: nn.Module, output: int | str) -> None:
        super().__init__()
        _require_modules(network=network)
        if isinstance(output, bool) or not isinstance(output, int | str):
            raise TypeError(
                f"output is the part of what the network returns: an index such as 0, or a name such as 'logits'; got "
                f"{output!r}."
            )
        self.network = network
        self.output = output

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """g(x)[output], for whatever the network takes.

        Raises:
            ValueError: there is no such part, or it is not a tensor of floating type.
        """
        return part_of(_called(self.network, args, kwargs), self.output)

    def extra_repr(self) -> str:
        """The part, for the printed network."""
        return f"output={self.output!r}"


class WithPrior(nn.Module):
    r"""f(x) = g(x) + β p(x): a trained network plus a fixed random one. [osband2018]

    Args:
        network: g, the network itself; not copied.
        prior_network: p, with outputs of the same shape; it is copied, and the copy is frozen, always in evaluation
            mode, and not under the prior p(θ).
        scale: β, at least 0; a buffer, so that files hold it.

    Raises:
        TypeError: one of them is not a module.
        ValueError: β is negative or not finite.

    Cost: two forward passes, and one backward.

    >>> network = WithPrior(nn.Linear(2, 3), nn.Linear(2, 3), scale=0.5)
    >>> print(*(name for name, p in network.named_parameters() if p.requires_grad))
    network.weight network.bias
    >>> network(torch.zeros(4, 2)).shape
    torch.Size([4, 3])
    """

    scale: Tensor

    def __init__(self, network: nn.Module, prior_network: nn.Module, scale: float = 1.0) -> None:
        super().__init__()
        _require_modules(network=network, prior_network=prior_network)
        if not (isfinite(scale) and scale >= 0):
            raise ValueError(f"scale, the factor of the prior network, must be at least 0 and finite, got {scale!r}.")
        self.network = network
        self.prior_network = frozen_copy(prior_network).eval()
        self.register_buffer("scale", _number(scale, network))

    def train(self, mode: bool = True) -> "WithPrior":
        """Set the mode of the network; the prior network stays in evaluation mode."""
        super().train(mode)
        self.prior_network.eval()
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """g(x) + β p(x), for whatever the network takes.

        Raises:
            ValueError: outputs of different shapes.
        """
        f, p = (_outputs(module, args, kwargs) for module in (self.network, self.prior_network))
        if f.shape != p.shape:
            raise ValueError(
                f"the network returned {tuple(f.shape)} and the prior network {tuple(p.shape)}: give the prior network "
                "outputs of the same shape."
            )
        return f + self.scale * p


class Tempered(nn.Module):
    r"""f(x)/T: a network with its logits divided by a temperature. [guo2017]

    A temperature above 1 makes predictions less confident, one below 1 more; the most probable class stays.

    Args:
        network: f, the network itself; not copied.
        temperature: T, positive; a buffer, so that files hold it and no posterior is over it.

    Raises:
        TypeError: ``network`` is not a module.
        ValueError: T is not positive and finite.

    >>> float(Tempered(nn.Identity(), 2.0)(torch.tensor([[3.0]])))
    1.5
    """

    temperature: Tensor

    def __init__(self, network: nn.Module, temperature: float = 1.0) -> None:
        super().__init__()
        _require_modules(network=network)
        require_positive("the temperature", temperature)
        self.network = network
        self.register_buffer("temperature", _number(temperature, network))

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """f(x)/T, for whatever the network takes."""
        return _outputs(self.network, args, kwargs) / self.temperature


def _require_modules(**modules: object) -> None:
    for name, module in modules.items():
        if not isinstance(module, nn.Module):
            raise TypeError(f"{name} must be a torch.nn.Module, got {type(module).__name__}.")


def _number(value: float, network: nn.Module) -> Tensor:
    """A scalar where the network lives, in its floating type."""
    like = next((p for p in network.parameters() if p.is_floating_point()), torch.empty(0))
    return torch.tensor(float(value), dtype=like.dtype, device=like.device)


def _called(network: nn.Module, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Call a network; named inputs reach one that takes them in one mapping."""
    if kwargs and not args:
        args, kwargs = arguments(kwargs, network)
    return network(*args, **kwargs)


def _outputs(network: nn.Module, args: tuple, kwargs: dict[str, Any]) -> Tensor:
    return output_of(_called(network, args, kwargs), (args, kwargs))
