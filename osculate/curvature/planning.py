"""Which parameters form a block, and which need the fallback: decided and verified once, on the first batch.

Nothing is taken on trust. The rules' result for a random column on one datum is compared with autograd's gradient; a
parameter whose rule gives something else (an axis that is not the batch, an operation that escaped the recorder)
goes to the fallback. A network whose output for one input is random, or depends on the others, is refused.
"""

import torch
from torch import Tensor

from osculate.curvature.engine import Block, Plan, Tape, pull, record
from osculate.curvature.forms import Form, Outer
from osculate.curvature.layers import Use
from osculate.parameters import Network


def make_plan(network: Network, x: Tensor) -> Plan:
    """The blocks of a network, found and verified on these inputs.

    Args:
        network: the network.
        x: a batch of inputs; at most the first 16 are used.

    Raises:
        ValueError: the output is random, or depends on the other inputs of the batch.

    Cost: three forward passes and two backward passes over at most 16 inputs.
    """
    x = x[:16] if len(x) > 1 else torch.cat([x, x])
    _require_a_function(network, x)
    tape = record(network, x)
    escaped = set(network.space.names) - {name for use, _, _ in tape.uses for name in use.names}
    wrong = tape.uncovered | escaped | _unfaithful(network, tape, x)
    good = [(use, form) for use, form in _sample_forms(tape) if not wrong & set(use.names)]
    wrong |= set(network.space.names) - {name for use, _ in good for name in use.names}
    blocks = _blocks(network, good) + [
        Block((name,), "fallback", network.space.positions()[name].reshape(-1)) for name in wrong
    ]
    order = {name: number for number, name in enumerate(network.space.names)}
    blocks.sort(key=lambda block: min(order[name] for name in block.names))
    last = max(tape.uses, key=lambda use: tape.uses.index(use))[0].names if tape.uses else network.space.names[-1:]
    return Plan(tuple(blocks), _floats(tape, good, blocks), last)


def _require_a_function(network: Network, x: Tensor) -> None:
    with torch.no_grad():
        first, second, alone = network(x), network(x), network(x[:1])
    if not torch.equal(first, second) and not bool((first.isnan() & second.isnan()).any()):
        raise ValueError(
            "the network gives another output for the same input when it is called again: an active dropout, or "
            "noise in its forward pass. Call model.eval() first, or take the randomness out."
        )
    scale = first.abs().max() + torch.finfo(first.dtype).tiny
    if bool(((alone - first[:1]).abs().max() / scale) > 1e-2):
        raise ValueError(
            "the output for one input depends on the other inputs of its batch (a normalisation over the batch in "
            "training mode, or attention across it): per-datum curvature is not defined. Call model.eval() first."
        )


def _sample_forms(tape: Tape, columns: Tensor | None = None) -> list[tuple[Use, Form | None]]:
    """Each use with its form for one random column on the first datum, None where axes cannot be read."""
    if columns is None:
        columns = torch.zeros_like(tape.f).unsqueeze(0)
        columns[0, 0] = 1.0
    pulled = pull(tape.f, [edge for _, edge, _ in tape.uses], columns)
    result: list[tuple[Use, Form | None]] = []
    for (use, _, _), g in zip(tape.uses, pulled, strict=True):
        result.append((use, None if g is None else _readable(use, g, len(tape.f))))
    return result


def _readable(use: Use, g: Tensor, count: int) -> Form | None:
    try:
        form = use.form(g)
        rows = len(form.a) if isinstance(form, Outer) else form.j.shape[1]
        return form.per_sample(count) if rows % count == 0 else None
    except (RuntimeError, ValueError):
        return None


def _unfaithful(network: Network, tape: Tape, x: Tensor) -> set[str]:
    """The parameters whose rules disagree with autograd for a random column on the first datum."""
    generator = torch.Generator().manual_seed(0)
    columns = torch.zeros_like(tape.f).unsqueeze(0)
    columns[0, 0] = torch.randn(tape.f[0].shape, generator=generator).to(tape.f)
    truth = torch.autograd.grad(tape.f, list(tape.theta.values()), columns[0], allow_unused=True, retain_graph=True)
    positions = network.space.positions()
    total = tape.f.new_zeros(network.space.size).detach()
    wrong: set[str] = set()
    for use, form in _sample_forms(tape, columns):
        if form is None:
            wrong |= set(use.names)
            continue
        rows = form.rows()[0]
        if bool(rows[1:].abs().max() > 1e-4 * rows[0].abs().max() + 1e-30):
            wrong |= set(use.names)
        total.index_add_(0, use.arrange(positions).reshape(-1).to(total.device), rows[0])
    for name, expected in zip(tape.theta, truth, strict=True):
        expected = torch.zeros_like(tape.theta[name]) if expected is None else expected
        found = total[positions[name]]
        if bool((found - expected).abs().max() > 1e-2 * expected.abs().max() + 1e-6):
            wrong.add(name)
    return wrong


def _blocks(network: Network, uses: list[tuple[Use, Form | None]]) -> list[Block]:
    """One block for each set of uses that share parameters."""
    positions = network.space.positions()
    groups: list[tuple[set[str], list[tuple[Use, Form | None]]]] = []
    for use, form in uses:
        touching = [group for group in groups if group[0] & set(use.names)]
        merged = (set(use.names).union(*(g[0] for g in touching)), [m for g in touching for m in g[1]] + [(use, form)])
        groups = [group for group in groups if group not in touching] + [merged]
    return [_block(names, members, network, positions) for names, members in groups]


def _block(
    names: set[str], members: list[tuple[Use, Form | None]], network: Network, positions: dict[str, Tensor]
) -> Block:
    ordered = tuple(name for name in network.space.names if name in names)
    use = members[0][0]
    entries = use.arrange(positions)
    alike = all(isinstance(form, Outer) and torch.equal(other.arrange(positions), entries) for other, form in members)
    if alike:
        return Block(use.names, "outer", entries, len(use.names) > 1)
    every = torch.cat([positions[name].reshape(-1) for name in ordered])
    return Block(ordered, "dense", every)


def _floats(tape: Tape, uses: list[tuple[Use, Form | None]], blocks: list[Block]) -> int:
    outputs = sum(size for _, _, size in tape.uses)
    repeated = {use.names[0] for use, form in uses if isinstance(form, Outer) and form.shared > 1}
    matrices = sum(b.size for b in blocks if b.kind != "outer" or repeated & set(b.names))
    return max(1, outputs + matrices)
