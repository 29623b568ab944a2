"""``python -m benchmarks.foundation half_billion --device cuda``: a LoRA posterior of a Llama with random weights.

Seconds in units of the model's own forward and backward pass with adapters, and peak memory. It needs transformers and
peft, which the package does not.
"""

import argparse
import json
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import osculate as osc

#: Settings of LlamaConfig by size; half_billion has 0.5 · 10⁹ parameters.
SIZES = {
    "small": {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4, "num_attention_heads": 4},
    "half_billion": {
        "hidden_size": 1280,
        "intermediate_size": 3456,
        "num_hidden_layers": 22,
        "num_attention_heads": 20,
    },
}
VOCABULARY, BATCH, TOKENS, RANK = 32_000, 4, 128, 8
#: Batches of a fit, draws of a prediction, and repeats.
BATCHES, DRAWS, REPEATS = 8, 16, 5


def adapted(size: str, device: str, dtype: torch.dtype) -> nn.Module:
    """The model with adapters in single precision, whose second factors are not zero."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    base = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, use_cache=False, **SIZES[size])).to(device, dtype)
    model = get_peft_model(base, LoraConfig(r=RANK, target_modules=["q_proj", "v_proj"])).eval()
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter, dtype=torch.float32) * parameter.shape[-1] ** -0.5
    return model


def seconds(work: Callable[[], object], device: str) -> float:
    """Median wall-clock seconds after a first call."""
    work()
    found = []
    for _ in range(REPEATS):
        _wait(device)
        start = time.perf_counter()
        work()
        _wait(device)
        found.append(time.perf_counter() - start)
    return sorted(found)[REPEATS // 2]


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _measured(size: str, device: str, dtype: torch.dtype) -> dict[str, object]:
    model, likelihood = adapted(size, device, dtype), osc.likelihoods.Categorical()
    ids = torch.randint(VOCABULARY, (BATCH, TOKENS + 1), device=device)
    x, y = {"input_ids": ids[:, :-1]}, ids[:, 1:]

    def step() -> None:
        model.zero_grad()
        nn.functional.cross_entropy(model(**x).logits.float().flatten(0, 1), y.flatten()).backward()

    def fit(batches: int) -> object:
        return osc.laplace(
            model, likelihood, [(x, y)] * batches, subset="lora", structure="kron", curvature="fisher", prior=1.0
        )

    def first_fit() -> object:
        with torch.no_grad():
            next(p for p in model.parameters() if p.requires_grad).add_(0)  # so that the plan is made again
        return fit(1)

    last = {"input_ids": ids[:, :-1], "logits_to_keep": 1}

    @torch.no_grad()
    def forward() -> Tensor:
        return model(**last).logits

    unit, passed = seconds(step, device), seconds(forward, device)
    peaks: dict[str, float] = {}
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    first, one, many = (seconds(work, device) for work in (first_fit, lambda: fit(1), lambda: fit(1 + BATCHES)))
    if device == "cuda":
        peaks["fit"] = torch.cuda.max_memory_allocated() / 1e9
        torch.cuda.reset_peak_memory_stats()
    q = fit(1)

    def predict() -> Tensor:
        return osc.predict(q, last, link="functions", samples=DRAWS).probs

    predicted = seconds(predict, device)
    if device == "cuda":
        peaks["predict"] = torch.cuda.max_memory_allocated() / 1e9
    found = osc.predict(q, last, link="functions", samples=DRAWS)
    return {
        "size": size,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "dtype": str(dtype),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "parameters of the posterior": q.mean.numel(),
        "unit, seconds": unit,
        "forward pass, seconds": passed,
        "fit, units a batch": (many - one) / BATCHES / unit,
        "first batch with plan, units": first / unit,
        f"{DRAWS} functions of a last token, forward passes": predicted / passed,
        "largest Monte Carlo error": float(found.standard_error.max()),
        "largest probability": float(found.probs.max()),
        "peak memory, GB": peaks,
        "torch": torch.__version__,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.foundation", description=__doc__)
    parser.add_argument("size", choices=tuple(SIZES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16"))
    options = parser.parse_args()
    print(json.dumps(_measured(options.size, options.device, getattr(torch, options.dtype)), indent=2))
