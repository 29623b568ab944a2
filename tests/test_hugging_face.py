"""Posteriors of models of transformers with adapters of peft, where both are installed."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import osculate as osc

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

SIZES = {"vocab_size": 200, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "use_cache": False}


def llama(dtype: torch.dtype, kind: str = "LlamaForCausalLM", **options: Any) -> Any:
    torch.manual_seed(0)
    base = getattr(transformers, kind)(transformers.LlamaConfig(**SIZES, **HEADS, **options)).to(dtype)
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    for name, p in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=0.1)
    return model.eval()


def inputs() -> dict[str, Tensor]:
    ids = torch.randint(1, 200, (6, 10), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_causal_model_with_adapters(dtype: torch.dtype, tmp_path: Path) -> None:
    model, x = llama(dtype), inputs()
    y = torch.randint(1, 200, (6, 10))
    y[:, :3] = -100
    likelihood = osc.likelihoods.Categorical(ignore_index=-100)
    q = osc.laplace(model, likelihood, [(x, y)], subset="lora", curvature="fisher")
    assert {block.kind for block in q.fit.plan.blocks} == {"outer"}
    last = {**x, "logits_to_keep": 1}
    found = osc.predict(q, last, link="functions", samples=16, generator=torch.Generator().manual_seed(0))
    assert found.probs.shape == (6, 1, 200)
    path = tmp_path / "q.safetensors"
    osc.save(q, path)
    assert os.path.getsize(path) < 60_000  # the base has 200 kB and more
    again = osc.load(path, model)
    same = osc.predict(again, last, link="functions", samples=16, generator=torch.Generator().manual_seed(0))
    assert torch.equal(same.probs, found.probs)
    model.merge_adapter()
    with pytest.raises(ValueError, match="changed in place"):
        osc.predict(q, last, link="functions", samples=2)
    with pytest.raises(ValueError, match="other frozen weights"):
        osc.load(path, model)


def test_a_classifier_with_adapters_has_the_refined_default() -> None:
    model, x = llama(torch.float32, "LlamaForSequenceClassification", num_labels=3), inputs()
    y = torch.arange(6) % 3
    q = osc.laplace(model, osc.likelihoods.Categorical(), [(x, y)], subset="lora")
    assert q.offset is not None
    assert osc.predict(q, x).probs.shape == (6, 3)
    head = osc.laplace(model, osc.likelihoods.Categorical(), [(x, y)], subset=["*score*"], structure="full")
    assert osc.functional_variance(head, x).shape[0] == 6
