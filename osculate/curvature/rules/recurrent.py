"""Recurrent networks, one call in torch, as linear layers: one for all inputs, and one at every step."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from osculate.curvature.rules._base import parts_of

#: The hidden state, followed by the memory cell of an LSTM: each (N, H).
State: TypeAlias = tuple[Tensor, ...]
#: A function from the terms of the input and of the hidden state in the gates, and the state, to the next state.
Step: TypeAlias = Callable[[Tensor, Tensor, State], State]


def lstm_step(a: Tensor, b: Tensor, state: State) -> State:
    """Input, forget and output gates."""
    i, f, g, o = (a + b).chunk(4, -1)
    memory = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(memory), memory


def gru_step(a: Tensor, b: Tensor, state: State) -> State:
    """Reset and update gates."""
    (a_r, a_z, a_n), (b_r, b_z, b_n) = a.chunk(3, -1), b.chunk(3, -1)
    z = torch.sigmoid(a_z + b_z)
    n = torch.tanh(a_n + torch.sigmoid(a_r + b_r) * b_n)
    return ((1 - z) * n + z * state[0],)


def _plain_step(activation: Callable[[Tensor], Tensor], a: Tensor, b: Tensor, state: State) -> State:
    return (activation(a + b),)


def one_step(
    step: Step, x: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Any:
    """One step; a state of a single tensor is passed and returned as that tensor."""
    state = (hx,) if isinstance(hx, Tensor) else tuple(hx)
    state = step(F.linear(x, w_ih, b_ih), F.linear(state[0], w_hh, b_hh), state)
    return state if len(state) > 1 else state[0]


def layers(step: Step, states: int, input: Tensor, hx: Any, params: Any, *settings: Any) -> Any:
    """Several layers, two directions, projections: the output, and the last states (layers · directions, N, H).

    A packed batch of sequences is not covered: its sizes take the position of the states, and these that of params.
    """
    first = (hx,) if isinstance(hx, Tensor) else tuple(hx)
    if len(first) != states or isinstance(params, Tensor):
        return NotImplemented
    has_biases, num_layers, dropout, train, bidirectional, batch_first = settings
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
            state = tuple(s[number] for s in first)
            output, state = _scan(step, x.flip(1) if backwards else x, state, weights, has_biases)
            outputs.append(output.flip(1) if backwards else output)
            last.append(state)
        x = torch.cat(outputs, -1) if bidirectional else outputs[0]
    return x if batch_first else x.transpose(0, 1), *(torch.stack(s) for s in zip(*last, strict=True))


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


for network, cell, step, states in (
    (torch.lstm, torch.lstm_cell, lstm_step, 2),
    (torch.gru, torch.gru_cell, gru_step, 1),
    (torch.rnn_tanh, torch.rnn_tanh_cell, partial(_plain_step, torch.tanh), 1),
    (torch.rnn_relu, torch.rnn_relu_cell, partial(_plain_step, torch.relu), 1),
):
    parts_of(network)(partial(layers, step, states))
    parts_of(cell)(partial(one_step, step))
