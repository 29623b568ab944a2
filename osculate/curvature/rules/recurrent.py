"""Recurrent networks, which torch hides in one call, as linear layers: one for all inputs, one at every step."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from osculate.curvature.rules._base import parts_of

#: The hidden state, and the memory cell of an LSTM behind it: each (N, H).
State: TypeAlias = tuple[Tensor, ...]
#: From what the input and the hidden state contribute to the gates, and the state, to the next state.
Step: TypeAlias = Callable[[Tensor, Tensor, State], State]


def _lstm_step(a: Tensor, b: Tensor, state: State) -> State:
    i, f, g, o = (a + b).chunk(4, -1)
    memory = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(memory), memory


def _gru_step(a: Tensor, b: Tensor, state: State) -> State:
    (a_r, a_z, a_n), (b_r, b_z, b_n) = a.chunk(3, -1), b.chunk(3, -1)
    z = torch.sigmoid(a_z + b_z)
    n = torch.tanh(a_n + torch.sigmoid(a_r + b_r) * b_n)
    return ((1 - z) * n + z * state[0],)


def _plain_step(activation: Callable[[Tensor], Tensor], a: Tensor, b: Tensor, state: State) -> State:
    return (activation(a + b),)


_tanh_step, _relu_step = partial(_plain_step, torch.tanh), partial(_plain_step, torch.relu)


@parts_of(torch.lstm)
def lstm(input: Tensor, hx: Any, params: Any, *settings: Any) -> Any:
    """Several layers, two directions, projections; a packed batch of sequences is not covered."""
    if isinstance(hx, Tensor):  # the sizes of a packed batch
        return NotImplemented
    found = _layers(_lstm_step, input, tuple(hx), params, *settings)
    return found if found is NotImplemented else (found[0], *found[1])


def _one_state(step: Step, input: Tensor, hx: Tensor, params: Any, *settings: Any) -> Any:
    if isinstance(params, Tensor):  # a packed batch: hx holds its sizes
        return NotImplemented
    found = _layers(step, input, (hx,), params, *settings)
    return found if found is NotImplemented else (found[0], found[1][0])


parts_of(torch.gru)(partial(_one_state, _gru_step))
parts_of(torch.rnn_tanh)(partial(_one_state, _tanh_step))
parts_of(torch.rnn_relu)(partial(_one_state, _relu_step))


@parts_of(torch.lstm_cell)
def lstm_cell(input: Tensor, hx: Any, *weights: Any) -> Any:
    """One step of an LSTM."""
    return _cell(_lstm_step, input, tuple(hx), *weights)


def _one_state_cell(step: Step, input: Tensor, hx: Tensor, *weights: Any) -> Tensor:
    return _cell(step, input, (hx,), *weights)[0]


parts_of(torch.gru_cell)(partial(_one_state_cell, _gru_step))
parts_of(torch.rnn_tanh_cell)(partial(_one_state_cell, _tanh_step))
parts_of(torch.rnn_relu_cell)(partial(_one_state_cell, _relu_step))


def _cell(
    step: Step, x: Tensor, state: State, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> State:  # fmt: skip
    return step(F.linear(x, w_ih, b_ih), F.linear(state[0], w_hh, b_hh), state)


def _layers(
    step: Step,
    input: Tensor,
    states: State,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """The output, and the last states (layers · directions, N, H)."""
    if train and dropout > 0:
        return NotImplemented
    x = input if batch_first else input.transpose(0, 1)
    directions = 2 if bidirectional else 1
    each = len(params) // (num_layers * directions)
    last: list[State] = []
    for layer in range(num_layers):
        outputs = []
        for backwards in range(directions):
            number = layer * directions + backwards
            weights = params[number * each : (number + 1) * each]
            state = tuple(s[number] for s in states)
            output, state = _scan(step, x.flip(1) if backwards else x, state, weights, has_biases)
            outputs.append(output.flip(1) if backwards else output)
            last.append(state)
        x = torch.cat(outputs, -1) if bidirectional else outputs[0]
    return x if batch_first else x.transpose(0, 1), tuple(torch.stack(s) for s in zip(*last, strict=True))


def _scan(step: Step, x: Tensor, state: State, weights: Sequence[Tensor], has_biases: bool) -> tuple[Tensor, State]:
    """The hidden states (N, T, H) over the steps of inputs (N, T, I), and the last state."""
    w_ih, w_hh, *rest = weights
    biases, projection = (rest[:2], rest[2:]) if has_biases else ([None, None], rest)
    contributions = F.linear(x, w_ih, biases[0])
    hidden = []
    for t in range(x.shape[1]):
        state = step(contributions[:, t], F.linear(state[0], w_hh, biases[1]), state)
        if projection:  # a projection of the hidden state
            state = (F.linear(state[0], projection[0]), *state[1:])
        hidden.append(state[0])
    return torch.stack(hidden, 1), state
