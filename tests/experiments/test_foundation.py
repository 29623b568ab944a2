"""Adapters of a language model of source code: functions and tokens, and the classifier."""

import pytest
import torch

import osculate as osc
from experiments.foundation import source
from experiments.foundation.adapters import Adapted, Classifier
from experiments.foundation.source import END, Source, Vocabulary, described, library, split
from tests.errors import says

LONG = "x = 1  # " + 150 * "a"
TEXT = f"class A:\n    def one(self):\n        {LONG}\n\n    def short(self): ...\n\ndef two():\n    {LONG}\n"


def test_functions_and_methods_are_found_without_indentation() -> None:
    first, second = Source("email/a.py", TEXT).functions()
    assert first.startswith("def one(self):\n    x = 1")
    assert second.startswith("def two()")
    assert Source("email/a.py", TEXT).package == "email"
    assert Source("textwrap.py", "").package == "textwrap"


def test_tokens_spell_a_text() -> None:
    vocabulary = Vocabulary.of([TEXT], 260)
    texts = [TEXT, "def ünknown(): pass"]
    for text in texts:
        pieces = [vocabulary.pieces[t - 256].encode() if t >= 256 else bytes([t]) for t in vocabulary.encode(text)]
        assert b"".join(pieces).decode() == text
    rows = vocabulary.padded(texts, 30)
    assert rows.shape == (2, 30)
    assert rows[1, -1] == END
    x, y = vocabulary.windows([Source("a.py", TEXT)] * 2, 8)
    assert torch.equal(x.flatten()[1:], y.flatten()[:-1])
    assert END in x


def test_the_digest_is_that_of_paths_and_contents() -> None:
    one, other = Source("a.py", "x"), Source("b.py", "x")
    assert described([one])["sha256"] != described([other])["sha256"]
    assert described([one])["bytes"] == 1
    assert not {part for each in library() for part in each.path.split("/")} & source.LEFT_OUT


def test_no_file_is_in_two_sets() -> None:
    sets = split("email", (8, 4, 20), 0)
    assert [len(texts) for texts in sets] == [8, 4, 20]
    files = [
        {each.path for each in library() if each.package == "email" and set(each.functions()) & set(texts)}
        for texts in sets
    ]
    assert not files[0] & files[1]
    assert not (files[0] | files[1]) & files[2]
    assert sets == split("email", (8, 4, 20), 0) != split("email", (8, 4, 20), 1)
    with pytest.raises(ValueError, match=says("'textwrap'", "[30, 2]", "python3-tk")):
        split("textwrap", (30, 2), 0)


def test_adapters_start_at_the_base_and_padding_does_not_count() -> None:
    base = osc.networks.GPT(300, 12, width=8, depth=1, heads=2)
    model = Classifier(base, 3, rank=2, dropout=0.1).eval()
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    assert [name for name in names if "lora_" not in name] == ["head.weight", "head.bias"]
    assert all(p.requires_grad for p in base.parameters())
    tokens = torch.randint(1, 300, (2, 6))
    padded = torch.cat([tokens, torch.full((2, 4), END)], 1)
    assert torch.allclose(model(tokens), model(padded), atol=1e-6)
    layer = torch.nn.Linear(4, 3)
    assert torch.equal(Adapted(layer, 2, 0.5)(torch.ones(1, 4)), layer(torch.ones(1, 4)))
