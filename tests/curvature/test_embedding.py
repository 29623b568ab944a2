"""Embeddings as lookups: the same numbers as a product with one-hot vectors, without the vectors."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import osculate as osc
from osculate.curvature.forms import Lookup, Outer, concatenate, matrices, one_hot
from osculate.structures.blocks import DiagonalBlock, KroneckerBlock, LookupBlock
from tests.laws import STRUCTURES, assert_close, check_algebra, check_functional_variance

ROWS, WIDTH, PADDING = 6, 3, 2


def lookup(seed: int = 0) -> Lookup:
    """Numbers that repeat within a datum, and padding; one datum is padding alone."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.tensor([[4, 1, 4, 4, -1], [-1, -1, -1, -1, -1], [0, 5, 3, 1, 2], [5, 5, 5, 5, 5]])
    return Lookup.of(numbers, ROWS, torch.randn(2, 4, 5, 1, WIDTH, generator=generator, dtype=torch.double))


def plain(form: Outer) -> Outer:
    """The same by its one-hot inputs."""
    return Outer(form.inputs, form.g, form.fresh)


@pytest.mark.parametrize("which", [slice(None), slice(0, 1), slice(1, 2), slice(3, 4)])
def test_rows_equal_those_of_one_hot_vectors(which: slice) -> None:
    form = lookup()
    form = Lookup.of(form.indices[which], ROWS, form.g[:, which])
    assert_close(form.matrices(), matrices(form.a, form.g))
    numbers, g = form.merged()
    assert numbers.shape[1] == max(len(set(row)) for row in form.indices.tolist())
    assert_close(torch.einsum("vnko,nki->vnoi", g, one_hot(numbers, ROWS, g.dtype)[:, :, 0]), form.matrices()[:, :, 0])


def test_parts_and_concatenations_stay_lookups() -> None:
    form, other = lookup(), lookup(1)
    for made, expected in (
        (form.first(), plain(form).first()),
        (form.per_sample(2), plain(form).per_sample(2)),
        (concatenate([form, other]), concatenate([plain(form), plain(other)])),
    ):
        assert isinstance(made, Lookup)
        assert not isinstance(expected, Lookup)
        assert_close(made.a, expected.a)
        assert_close(made.rows(), expected.rows())
    mixed = concatenate([form, plain(other)])
    assert not isinstance(mixed, Lookup)
    assert_close(mixed.rows(), form.rows() + other.rows())


def test_blocks_equal_those_of_one_hot_vectors() -> None:
    positions = torch.arange(WIDTH * ROWS).reshape(1, WIDTH, ROWS)
    where = (torch.double, torch.device("cpu"))
    pairs = (
        (LookupBlock.zero(positions, False, *where), KroneckerBlock.zero(positions, False, *where)),
        (DiagonalBlock.zero(positions, *where), DiagonalBlock.zero(positions, *where)),
    )
    for block, other in pairs:
        for seed in (0, 1):
            block.accumulate(lookup(seed))
            other.accumulate(plain(lookup(seed)))
        block.finish()
        other.finish()
        assert_close(block.dense(), other.dense())


class Tokens(nn.Module):
    """A padded embedding with repeated tokens, and a head."""

    def __init__(self, vocabulary: int = ROWS, width: int = WIDTH) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width, padding_idx=PADDING)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embed(tokens)).sum(1))


class OneHot(nn.Module):
    """The same network written as a product."""

    def __init__(self, model: Tokens) -> None:
        super().__init__()
        self.weight = nn.Parameter(model.embed.weight.detach().T.clone())
        self.head = model.head

    def forward(self, tokens: Tensor) -> Tensor:
        hot = F.one_hot(tokens, self.weight.shape[1]).to(self.weight) * (tokens != PADDING).unsqueeze(-1)
        return self.head(torch.tanh(F.linear(hot, self.weight)).sum(1))


@pytest.mark.parametrize("structure", STRUCTURES)
def test_every_structure_equals_that_of_a_product_with_one_hot_vectors(structure: str) -> None:
    torch.manual_seed(0)
    model = Tokens().double()
    tokens, y = torch.randint(ROWS, (7, 5)), torch.randn(7, 2, dtype=torch.double)
    likelihood = osc.likelihoods.Gaussian(0.5)
    q, other = (
        osc.laplace(m, likelihood, (tokens, y), structure=structure, prior=0.7, refine=False)
        for m in (model, OneHot(model))
    )
    if structure not in ("approx_diag", "low_rank"):  # the squared rule and random projections depend on the order
        assert_close(osc.functional_variance(q, tokens), osc.functional_variance(other, tokens))
        assert_close(osc.log_evidence(q), osc.log_evidence(other))
    check_algebra(q)
    check_functional_variance(q, osc.curvature.reference.jacobian(model, tokens), tokens)


def test_kinds_of_blocks() -> None:
    model, data = Tokens().double(), (torch.randint(ROWS, (7, 5)), torch.randn(7, 2, dtype=torch.double))
    for structure in ("kron", "ekfac"):
        q = osc.laplace(model, osc.likelihoods.Gaussian(1.0), data, structure=structure, prior=1.0, refine=False)
        assert q.fit.plan.blocks[0].kind == "lookup"
        (block, *_) = q.structure.blocks
        assert isinstance(block, LookupBlock)
        assert (block.corrected is not None) == (structure == "ekfac")


class Tied(nn.Embedding):
    """The table embeds the tokens and is the head."""

    def forward(self, tokens: Tensor) -> Tensor:
        return F.linear(super().forward(tokens).mean(1), self.weight)


def test_a_tied_table_adds_up_in_single_precision_under_autocast() -> None:
    torch.manual_seed(0)
    model, data = Tied(ROWS, WIDTH), (torch.randint(ROWS, (7, 5)), torch.randint(ROWS, (7,)))
    exact = osc.laplace(model, osc.likelihoods.Categorical(), data, structure="diag", prior=1.0, refine=False)
    with torch.autocast("cpu", torch.bfloat16):
        q = osc.laplace(model, osc.likelihoods.Categorical(), data, structure="diag", prior=1.0, refine=False)
    assert q.variance().dtype == torch.float32
    torch.testing.assert_close(q.variance(), exact.variance(), rtol=0.02, atol=0.0)


def test_a_posterior_over_an_embedding_is_saved_and_loaded(tmp_path) -> None:
    model, data = Tokens().double(), (torch.randint(ROWS, (7, 5)), torch.randn(7, 2, dtype=torch.double))
    q = osc.laplace(model, osc.likelihoods.Gaussian(1.0), data, prior=1.0, refine=False)
    osc.save(q, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", model)
    assert_close(osc.functional_variance(again, data[0]), osc.functional_variance(q, data[0]))


class Largest(TorchDispatchMode):
    """The largest number of entries of any tensor that an operation returns."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        sizes = [leaf.untyped_storage().nbytes() for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
        self.entries = max([self.entries, *(size // 4 for size in sizes)])
        return output


@pytest.mark.parametrize("structure", ["kron", "ekfac", "diag"])
def test_a_large_vocabulary_makes_nothing_of_its_square_and_no_one_hot_vector(structure: str) -> None:
    vocabulary, width = 20_000, 4
    model, n, length = Tokens(vocabulary, width), 20, 30
    tokens, y = torch.randint(vocabulary, (n, length)), torch.randint(2, (n,))
    parameters = vocabulary * width + 2 * width + 2
    with Largest() as seen:
        q = osc.laplace(model, osc.likelihoods.Categorical(), (tokens, y), structure=structure, prior=1.0, refine=False)
        osc.predict(q, tokens[:3], link="probit")
        osc.sample_functions(q, tokens[:3], samples=1)
    assert parameters <= seen.entries <= 4 * parameters < n * length * vocabulary  # int64 positions, at most twice
