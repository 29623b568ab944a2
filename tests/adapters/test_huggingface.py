"""A posterior at the end of a training by Hugging Face's Trainer, by one line; models with random weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from osculate.adapters.huggingface import LaplaceTrainerCallback  # noqa: E402

VOCABULARY = 20
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
}
IDS = torch.randint(1, VOCABULARY, (12, 6), generator=torch.Generator().manual_seed(0))
LENGTHS = [3 + n % 4 for n in range(12)]
CLASSES = torch.arange(12) % 3


def llama(task: str, **options: Any) -> Any:
    torch.manual_seed(0)
    return getattr(transformers, f"LlamaFor{task}")(transformers.LlamaConfig(**SIZES, **options))


def rows(labels: Any) -> list[dict[str, Tensor]]:
    """Sequences of different lengths."""
    return [{"input_ids": i[:size], "labels": y} for i, size, y in zip(IDS, LENGTHS, labels, strict=True)]


def padded(batch: list[dict[str, Any]]) -> dict[str, Tensor]:
    """A data collator."""
    sequences = [torch.as_tensor(row["input_ids"]) for row in batch]
    ids = nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    labels = [torch.as_tensor(row["labels"] if "labels" in row else row["label"]) for row in batch]
    y = nn.utils.rnn.pad_sequence(labels, True, -100) if labels[0].ndim and len({*map(len, labels)}) > 1 else None
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": torch.stack(labels) if y is None else y}


def trained(model: nn.Module, data: Any, callback: LaplaceTrainerCallback, folder: Path) -> Any:
    arguments = transformers.TrainingArguments(
        str(folder),
        num_train_epochs=1,
        per_device_train_batch_size=5,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model, arguments, train_dataset=data, data_collator=padded)
    trainer.add_callback(callback)
    trainer.train()
    return callback.posterior


def inputs() -> dict[str, Tensor]:
    found = padded(rows(CLASSES))
    return {name: found[name] for name in ("input_ids", "attention_mask")}


def test_one_line_fits_refines_and_saves(tmp_path: Path) -> None:
    model = llama("SequenceClassification", num_labels=3)
    path = tmp_path / "new" / "q.safetensors"
    q = trained(model, rows(CLASSES), LaplaceTrainerCallback(path, subset="last_layer"), tmp_path)
    assert q.num_data == 12
    assert q.offset is not None  # refined
    again = osc.load(path, model)
    assert torch.equal(osc.predict(again, inputs()).probs, osc.predict(q, inputs()).probs)
    likelihood = osc.likelihoods.Categorical(ignore_index=-100)
    expected = osc.laplace(model.eval(), likelihood, [(inputs(), CLASSES)], subset="last_layer")
    torch.testing.assert_close(
        osc.predict(q, inputs()).probs, osc.predict(expected, inputs()).probs, rtol=1e-2, atol=1e-3
    )


@pytest.mark.parametrize(
    ("labels", "outputs", "likelihood"),
    [
        (torch.linspace(-1, 1, 12), 1, osc.likelihoods.Gaussian),
        ((torch.arange(48).reshape(12, 4) % 5 > 2).float(), 4, osc.likelihoods.Bernoulli),
    ],
    ids=["regression", "several labels"],
)
def test_the_likelihood_is_that_of_the_loss(labels: Tensor, outputs: int, likelihood: type, tmp_path: Path) -> None:
    model = llama("SequenceClassification", num_labels=outputs)
    q = trained(model, rows(labels), LaplaceTrainerCallback(subset="last_layer"), tmp_path)
    assert type(q.likelihood) is likelihood
    assert osc.predict(q, inputs()).mean.shape == (12, outputs)


def test_labels_of_tokens_and_held_out_data(tmp_path: Path) -> None:
    labels = [ids[:size] % 3 for ids, size in zip(IDS, LENGTHS, strict=True)]
    held_out = [padded(rows(labels))]
    callback = LaplaceTrainerCallback(subset="last_layer", validation=held_out)
    with pytest.warns(UserWarning, match="not refined: the targets of some batches have the shape"):
        q = trained(llama("TokenClassification", num_labels=3), rows(labels), callback, tmp_path)
    assert q.tuning is not None
    assert osc.predict(q, inputs()).probs.shape == (12, 6, 3)


def test_adapters_of_a_causal_model_and_the_shift_of_its_labels(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(llama("CausalLM"), settings)
    data = rows([ids[:size] for ids, size in zip(IDS, LENGTHS, strict=True)])
    options = {"subset": "lora", "structure": "diag", "prior": 1.0, "refine": False}
    q = trained(model, data, LaplaceTrainerCallback(**options), tmp_path)
    assert all("lora_" in name for name in q.network.space.names)
    y = torch.full_like(IDS, -100)
    for n, size in enumerate(LENGTHS):
        y[n, : size - 1] = IDS[n, 1:size]
    likelihood = osc.likelihoods.Categorical(ignore_index=-100)
    expected = osc.laplace(model.eval(), likelihood, [(inputs(), y)], **options)
    torch.testing.assert_close(q.variance(), expected.variance(), rtol=1e-3, atol=1e-5)
    last = {**inputs(), "logits_to_keep": 1}
    assert osc.predict(q, last, link="functions", samples=2).probs.shape == (12, 1, VOCABULARY)


def test_data_sets_of_hugging_face(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    lists = [ids[:size].tolist() for ids, size in zip(IDS, LENGTHS, strict=True)]
    data = datasets.Dataset.from_dict({"input_ids": lists, "label": CLASSES.tolist(), "text": ["…"] * 12})
    model = llama("SequenceClassification", num_labels=3)
    q = trained(model, data, LaplaceTrainerCallback(subset="last_layer"), tmp_path)
    loader = torch.utils.data.DataLoader(data, 5, collate_fn=padded)  # without a Trainer
    direct = osc.laplace(model.eval(), osc.likelihoods.Categorical(), loader, subset="last_layer")
    assert direct.num_data == q.num_data == 12


def test_batches_without_labels_and_folders_are_refused_before_the_training(tmp_path: Path) -> None:
    model = llama("SequenceClassification", num_labels=3)
    loader = torch.utils.data.DataLoader(rows(CLASSES), 5, collate_fn=lambda batch: {"input_ids": padded(batch)})
    with pytest.raises(ValueError, match="a batch has input_ids, and no 'labels'"):
        LaplaceTrainerCallback().on_train_begin(None, None, None, model=model, train_dataloader=loader)
    for options, words in [({"subset": ["head"]}, "could be fitted.*'head'"), ({"prior": "evidance"}, "'evidance'")]:
        with pytest.raises(ValueError, match=words):
            trained(model, rows(CLASSES), LaplaceTrainerCallback(**options), tmp_path)
    with pytest.raises(IsADirectoryError, match="name a file"):
        trained(model, rows(CLASSES), LaplaceTrainerCallback(tmp_path), tmp_path)
    with pytest.raises(TypeError, match="unexpected keyword argument 'strcture'"):
        LaplaceTrainerCallback(strcture="diag")


def test_an_error_of_the_fit_takes_nothing_from_the_training(tmp_path: Path) -> None:
    model = llama("SequenceClassification", num_labels=3)
    callback = LaplaceTrainerCallback(subset="last_layer", validation=[{"input_ids": IDS}])
    with (
        pytest.warns(UserWarning, match="the training is complete, and has no posterior: ValueError: a batch has"),
        pytest.raises(ValueError, match="and no 'labels'"),
    ):
        trained(model, rows(CLASSES), callback, tmp_path)  # reads callback.posterior after the training
    assert model.training


def test_labels_are_shifted_where_the_loss_shifts_them(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))  # does not name its loss
    data = rows([ids[:size] for ids, size in zip(IDS, LENGTHS, strict=True)])
    options = {"structure": "diag", "prior": 1.0, "refine": False}
    q = trained(model, data, LaplaceTrainerCallback(**options), tmp_path)
    batch, model = padded(data), model.eval()
    nll = -q.likelihood.log_prob(
        model(**inputs()).logits, torch.nn.functional.pad(batch["labels"][:, 1:], (0, 1), value=-100)
    )
    torch.testing.assert_close(nll.sum() / (batch["labels"][:, 1:] >= 0).sum(), model(**batch).loss)
    assert q.fit.statistics["log_likelihood"] == pytest.approx(-float(nll.sum()), rel=1e-4)


def test_another_loss_is_refused_before_the_training(tmp_path: Path) -> None:
    model = llama("SequenceClassification", num_labels=3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.loss_function = lambda *_, pooled_logits, **__: pooled_logits.square().mean()
    with pytest.raises(ValueError, match="other targets than the training"):
        trained(model, rows(CLASSES), LaplaceTrainerCallback(subset="last_layer"), tmp_path)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
