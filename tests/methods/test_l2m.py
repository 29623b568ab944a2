"""L2M: the scale of its precisions for every optimiser and way of making batches, its priors, and what it refuses."""

import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adagrad, Adam, AdamW, NAdam, RAdam, RMSprop
from torch.optim.adamax import Adamax

import osculate as osc
from osculate.methods import L2M
from osculate.posteriors import Mixture
from tests.laws import assert_close
from tests.methods.variational import CLASSES, convolutional, data, descend, network, run

YES_OR_NO = osc.likelihoods.Bernoulli()
N = 1024
#: Long windows, so that what is left of the noise is a few per cent.
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "adam": lambda p, lr, **how: Adam(p, lr, **how),
    "adamw": lambda p, lr, **how: AdamW(p, lr, weight_decay=0.0, **how),
    "amsgrad": lambda p, lr, **how: Adam(p, lr, amsgrad=True, **how),
    "rmsprop": lambda p, lr, **how: RMSprop(p, lr, alpha=0.999, **how),
}


def logistic() -> tuple[nn.Module, Tensor, Tensor]:
    """Data of a logistic regression, and the network at its maximum."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, 8, generator=generator)
    y = torch.bernoulli((x @ torch.linspace(-1, 1, 8)[:, None]).sigmoid(), generator=generator)
    model = nn.Linear(8, 1, bias=False)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=200, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = -YES_OR_NO.log_prob(model(x), y).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    return model, x, y


def batches(size: int, how: str, steps: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(1)
    done = 0
    while done < steps:
        if how == "replacement":
            yield torch.randint(N, (size,), generator=generator)
            done += 1
            continue
        for rows in torch.randperm(N, generator=generator).split(size):
            yield rows
            done += 1


def stepped(optimizer: Any, model: nn.Module, x: Tensor, y: Tensor, size: int, how: str, steps: int = 2000) -> None:
    """Steps of next to no length, on a plain gradient: what the end of a training with a falling rate is."""
    (weight,) = model.parameters()
    for rows in batches(size, how, steps):
        residual = (model(x[rows]) - 0).detach().sigmoid() - y[rows]
        weight.grad = (residual.T @ x[rows]) / len(rows)
        optimizer.step()


def exact(model: nn.Module, x: Tensor, y: Tensor, prior: float = 1.0) -> Tensor:
    return 1 / osc.laplace(model, YES_OR_NO, (x, y), structure="diag", prior=prior, refine=False).variance()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("how", ["shuffled", "replacement"])
@pytest.mark.parametrize(
    "size", [pytest.param(1, marks=pytest.mark.slow), 16, pytest.param(128, marks=pytest.mark.release)]
)
def test_its_precisions_are_those_of_the_exact_diagonal(name: str, how: str, size: int) -> None:
    model, x, y = logistic()
    optimizer = OPTIMIZERS[name](model.parameters(), 1e-9)
    stepped(optimizer, model, x, y, size, how)
    made = L2M.from_optimizer(model, optimizer, N, size, YES_OR_NO, (x, y), prior_precision=1.0, sampling=how)
    ratio = exact(model, x, y) * made.posterior.variance()
    assert 0.9 < float((1 / ratio).median()) < 1.1, 1 / ratio
    printed = L2M.from_optimizer(
        model, optimizer, N, size, YES_OR_NO, (x, y), prior_precision=1.0, scaling="paper", sampling=how
    )
    assert float((1 / (exact(model, x, y) * printed.posterior.variance())).median()) < 0.05


def test_batches_of_all_data_are_refused() -> None:
    model, x, y = logistic()
    optimizer = Adam(model.parameters(), 1e-9)
    stepped(optimizer, model, x, y, N, "shuffled", 10)
    with pytest.raises(ValueError, match="each batch was all of the 1024 data"):
        L2M.from_optimizer(model, optimizer, N, N, YES_OR_NO, (x, y), prior_precision=1.0)
    with pytest.raises(ValueError, match="each batch was all of the 48 data"):
        run(L2M(network(), CLASSES), batch_size=48)


def test_the_finite_number_of_data_is_counted() -> None:
    """With half of the data in a batch without replacement, N M alone is half of what it should be."""
    model, x, y = logistic()
    optimizer = Adam(model.parameters(), 1e-9)
    stepped(optimizer, model, x, y, 512, "shuffled", 3000)
    made = L2M.from_optimizer(model, optimizer, N, 512, YES_OR_NO, (x, y), prior_precision=1.0)
    assert 0.9 < float((1 / (exact(model, x, y) * made.posterior.variance())).median()) < 1.1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = L2M.from_optimizer(
            model, optimizer, N, 512, YES_OR_NO, (x, y), prior_precision=1.0, sampling="replacement"
        )
    assert float((1 / (exact(model, x, y) * plain.posterior.variance())).median()) < 0.6


@pytest.mark.parametrize("how", [{"fused": True}, {"foreach": True}, {"capturable": False}])
@pytest.mark.parametrize("kind", [Adam, AdamW, NAdam, RAdam, RMSprop, Adadelta])
def test_every_form_of_an_optimiser_is_read(kind: Any, how: dict[str, bool]) -> None:
    if "fused" in how and kind not in (Adam, AdamW):
        pytest.skip("there is no fused form")
    x, y = (part.float() if part.is_floating_point() else part for part in data())
    model = network().float()
    optimizer = kind(model.parameters(), 1e-3, weight_decay=0.0, **how)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[:16]), y[:16]).backward()
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = L2M.from_optimizer(model, optimizer, 48, 16, CLASSES, (x, y), prior_precision=1.0)
    key = "square_avg" if kind in (RMSprop, Adadelta) else "exp_avg_sq"
    group = optimizer.param_groups[0]
    memory = group["betas"][1] if "betas" in group else group.get("alpha", group.get("rho"))
    v = torch.cat([optimizer.state[p][key].reshape(-1) for p in model.parameters()]) / (1 - memory**3)
    assert_close(1 / made.posterior.variance(), 1 + 48 * 16 * 47 / 32 * v, 1e-5)


def test_centred_moments_have_their_mean_taken_off() -> None:
    x, y = data()
    model = network()
    optimizer = RMSprop(model.parameters(), 1e-3, centered=True, alpha=0.9)
    for rows in torch.arange(48).split(16):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    with pytest.warns(UserWarning, match="average over about 3 steps"):
        made = L2M.from_optimizer(model, optimizer, 48, 16, CLASSES, (x, y), prior_precision=1.0)
    state = [optimizer.state[p] for p in model.parameters()]
    v, mean = (torch.cat([s[k].reshape(-1) for s in state]) / (1 - 0.9**3) for k in ("square_avg", "grad_avg"))
    spread = (v - mean.square()).clamp(min=0)
    assert_close(1 / made.posterior.variance(), 1 + 48 * 16 * 47 / 32 * spread + 48 * mean.square())


@pytest.mark.release
def test_the_mean_gradient_of_adamw_is_what_its_decay_holds_against() -> None:
    """At the fixed point of AdamW the gradient is not zero: without it, strongly decayed weights would seem sharp."""
    model, x, y = logistic()
    decay = 0.3
    optimizer = AdamW(model.parameters(), 0.01, weight_decay=decay)
    for rate in (0.01, 0.001, 1e-9):
        optimizer.param_groups[0]["lr"] = rate
        stepped(optimizer, model, x, y, 128, "shuffled", 4000)
    made = L2M.from_optimizer(model, optimizer, N, 128, YES_OR_NO, (x, y), prior_precision=1.0)
    single = osc.laplace(
        model, YES_OR_NO, (x, y), structure="diag", prior=1.0, curvature="empirical_fisher", refine=False
    )
    ratio = single.variance() / made.posterior.variance()
    assert float((ratio - 1).abs().max()) < 0.15, ratio
    with_decay = L2M.from_optimizer(model, optimizer, N, 128, YES_OR_NO, (x, y), prior_precision="adamw")
    v = made._required[0].values
    assert_close(with_decay.posterior.prior.precision, N * decay * (v.sqrt() + 1e-8), 1e-5)
    assert_close(  # the fixed point itself: gradient = decay (√v̂ + ε) θ
        -_mean_gradient(model, x, y), decay * (v.sqrt() + 1e-8) * model.weight.detach().reshape(-1), 0.2
    )


def _mean_gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    model.zero_grad()
    (-YES_OR_NO.log_prob(model(x), y).mean()).backward()
    return model.weight.grad.reshape(-1)


# ---- priors and losses -----------------------------------------------------------------------------------------------


def trained(kind: Any = Adam, **options: Any) -> tuple[nn.Module, Any, tuple[Tensor, Tensor]]:
    x, y = data(96)
    model = network()
    optimizer = kind(model.parameters(), 0.01, **options)
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        for rows in torch.randperm(96, generator=generator).split(16):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model, optimizer, (x, y)


def test_priors_by_name() -> None:
    model, optimizer, pair = trained(weight_decay=0.02)
    l2 = L2M.from_optimizer(model, optimizer, 96, 16, CLASSES, pair, prior_precision="l2")
    assert_close(l2.posterior.prior.precision, torch.full((51,), 96 * 0.02).double(), 1e-6)
    evidence = L2M.from_optimizer(model, optimizer, 96, 16, CLASSES, pair)
    assert type(evidence.posterior.prior).__name__ == "Layerwise"
    again = osc.maximise_evidence(evidence.posterior)
    assert_close(again.prior.precision, evidence.posterior.prior.precision, 0.05)
    held_out = data(40)
    tuned = L2M.from_optimizer(
        model, optimizer, 96, 16, CLASSES, pair, prior_precision="validation", validation=held_out
    )
    score = -float(osc.predict(tuned, held_out[0]).log_prob(held_out[1]).mean())
    fixed = L2M.from_optimizer(model, optimizer, 96, 16, CLASSES, pair, prior_precision=1.0)
    assert score <= -float(osc.predict(fixed, held_out[0]).log_prob(held_out[1]).mean()) + 0.02


def test_a_squared_error_is_brought_to_the_scale_of_the_likelihood() -> None:
    torch.manual_seed(0)
    x = torch.randn(96, 3, dtype=torch.double)
    y = x @ torch.randn(3, 2, dtype=torch.double) + 0.3 * torch.randn(96, 2, dtype=torch.double)
    moments = {}
    likelihood = osc.likelihoods.Gaussian(0.3)
    for name in ("mse", "nll"):
        torch.manual_seed(1)
        model = nn.Linear(3, 2).double()
        optimizer = Adam(model.parameters(), 1e-9)
        for rows in torch.arange(96).split(16):
            optimizer.zero_grad()
            f = model(x[rows])
            loss = nn.functional.mse_loss(f, y[rows]) if name == "mse" else -likelihood.log_prob(f, y[rows]).mean()
            loss.backward()
            optimizer.step()
        scale = "mse" if name == "mse" else 1.0
        with pytest.warns(UserWarning, match="average over about"):
            moments[name] = L2M.from_optimizer(
                model, optimizer, 96, 16, likelihood, (x, y), prior_precision=1.0, loss_scale=scale
            )
    assert_close(moments["mse"].posterior.variance(), moments["nll"].posterior.variance(), 1e-6)


# ---- frozen weights, training, and what can be done with it ----------------------------------------------------------


@pytest.mark.parametrize("labels", ["data", "drawn"])
@pytest.mark.slow
def test_a_refresh_takes_the_moments_again_where_the_weights_are(labels: str) -> None:
    model, optimizer, pair = trained()
    made = L2M.from_optimizer(model, optimizer, 96, 16, CLASSES, pair, prior_precision=1.0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    torch.manual_seed(0)
    q = made.refresh(1500, labels)
    kind = "empirical_fisher" if labels == "data" else "ggn"
    expected = osc.laplace(model, CLASSES, pair, structure="diag", prior=1.0, curvature=kind, refine=False)
    assert 0.93 < float((expected.variance() / q.variance()).median()) < 1.07
    assert q is made.posterior
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert all(p.grad is not None for p in model.parameters()), "gradients of the user are left as they were"


def test_it_is_a_method_like_all_others(tmp_path: Path) -> None:
    whole = run(L2M(network(), CLASSES), schedule="constant", epochs=40)
    run(L2M(network(), CLASSES), schedule="constant", epochs=20, folder=tmp_path)
    again = run(L2M(network(), CLASSES), schedule="constant", epochs=40, folder=tmp_path, resume=True)
    assert torch.equal(whole.posterior.variance(), again.posterior.variance())
    ended = run(L2M(network(), CLASSES), schedule="constant", epochs=40, folder=tmp_path, resume=True)
    assert torch.equal(whole.posterior.variance(), ended.posterior.variance()), "a run that had ended"
    osc.save(whole, tmp_path / "q.safetensors")
    x = data()[0]
    loaded = osc.load(tmp_path / "q.safetensors", network())
    assert torch.equal(osc.predict(whole, x).probs, osc.predict(loaded, x).probs)
    with pytest.raises(ValueError, match="scaling='corrected', not 'paper'"):
        run(L2M(network(), CLASSES, scaling="paper"), schedule="constant", folder=tmp_path, resume=True)


def test_weights_that_early_stopping_puts_back_have_the_gradients_of_single_data(tmp_path: Path) -> None:
    x, y = data(96)
    held_out = (x[:20], (y[:20] + 1) % 3)  # the longer it trains, the worse
    how: Any = {"epochs": 30, "validation": held_out, "patience": 2, "schedule": "constant", "lr": 0.05}
    done = run(L2M(network(), CLASSES), (x, y), folder=tmp_path, **how)
    expected = osc.laplace(
        done.model, CLASSES, (x, y), structure="diag", prior=1.0, curvature="empirical_fisher", refine=False
    )
    assert_close(done.posterior.variance(), expected.variance())
    again = run(L2M(network(), CLASSES), (x, y), folder=tmp_path, resume=True, **how)
    assert_close(again.posterior.variance(), expected.variance())


@pytest.mark.slow
@pytest.mark.parametrize("number", [130, *(pytest.param(n, marks=pytest.mark.release) for n in (515, 1000))])
def test_the_few_data_of_a_last_batch_are_counted(number: int) -> None:
    """A batch of 2 has 64 times the noise of one of 128, and as much weight in the second moment."""
    model, x, y = logistic()
    pair = x[:number], y[:number]
    method = L2M(model, YES_OR_NO)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = descend(method, pair, 2000 // -(-number // 128) * -(-number // 128), 1e-9, 128, falls=False)
        single = osc.laplace(
            model, YES_OR_NO, pair, structure="diag", prior=1.0, curvature="empirical_fisher", refine=False
        )
        read = L2M.from_optimizer(model, method._optimizer, number, 128, YES_OR_NO, pair, prior_precision=1.0).posterior
    assert 0.85 < float((single.variance() / found.variance()).median()) < 1.15
    assert_close(read.variance(), found.variance(), 0.05)


@pytest.mark.release
@pytest.mark.parametrize("steps", [3, 8, 12])
def test_a_refresh_is_without_bias_whatever_its_length(steps: int) -> None:
    model, x, y = logistic()
    optimizer = Adam(model.parameters(), 1e-9)
    stepped(optimizer, model, x, y, 128, "shuffled", 1000)
    made = L2M.from_optimizer(model, optimizer, N, 128, YES_OR_NO, (x, y), prior_precision=1.0)
    generator, single = torch.Generator().manual_seed(0), (model(x).sigmoid() - y).detach() * x
    gradients = made._gradients(generator=generator)
    found = torch.stack([gradients.fisher(steps) for _ in range(4000 // steps)]).mean(0)
    assert_close(found, single.square().sum(0).double(), 0.08)


def test_batches_that_are_always_the_same_are_taken_once() -> None:
    model, x, y = logistic()
    optimizer = Adam(model.parameters(), 1e-9)
    stepped(optimizer, model, x, y, 128, "shuffled", 1000)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=128)
    made = L2M.from_optimizer(model, optimizer, N, 128, YES_OR_NO, loader, prior_precision=1.0)
    assert torch.equal(made.refresh(8).variance(), made.refresh(800).variance())
    with pytest.raises(ValueError, match="at least two different batches of 128, but the data have 1"):
        L2M.from_optimizer(model, optimizer, N, 128, YES_OR_NO, [(x[:128], y[:128])], prior_precision=1.0).refresh(50)


def test_a_second_moment_from_elsewhere_warns() -> None:
    model, x, y = logistic()
    optimizer = Adam(model.parameters(), 1e-9)
    stepped(optimizer, model, x, y, 128, "shuffled", 1000)
    for wrong in ({"loss_scale": 3.0}, {"batch_size": 16}):
        with pytest.warns(
            UserWarning, match="the curvature in the state of the optimiser is .* times that of a few batches"
        ):
            L2M.from_optimizer(
                model,
                optimizer,
                likelihood=YES_OR_NO,
                data=(x, y),
                prior_precision=1.0,
                **{"num_data": N, "batch_size": 128} | wrong,
            )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        L2M.from_optimizer(model, optimizer, N, 128, YES_OR_NO, (x, y), prior_precision=1.0)


@pytest.mark.release
def test_a_prior_in_the_loss_is_taken_off_whatever_the_optimiser() -> None:
    """In osc.train the prior acts through the gradient with AdamW too."""
    model, x, y = logistic()
    found = []
    for kind in (Adam, partial(AdamW, weight_decay=0.0)):
        method = L2M(deepcopy(model), YES_OR_NO, 50.0)
        found.append(descend(method, (x, y), 1600, 3e-3, 64, make=kind).variance())
    assert_close(found[0], found[1], 0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_users_module_with_frozen_layers(dtype: torch.dtype) -> None:
    model = convolutional().to(dtype)
    model.head.bias.requires_grad_(False)
    x, y = data()[0].to(dtype), data()[1]
    optimizer = Adam([p for p in model.parameters() if p.requires_grad], 0.01)
    for _ in range(40):
        for rows in torch.arange(48).split(16):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16, shuffle=True)
    made = L2M.from_optimizer(model, optimizer, 48, 16, CLASSES, loader)
    assert "head.bias" not in made.posterior.network.space.names
    for via in ("linearised", "sampled", "mode"):
        assert osc.predict(made, x[:5], via=via).probs.shape == (5, 3)
    assert made.refresh(20).variance().dtype == dtype


def test_members_of_an_ensemble_are_mixed() -> None:
    made = []
    for seed in range(3):
        x, y = data(96)
        model = network(seed)
        optimizer = Adam(model.parameters(), 0.01)
        for _ in range(30):
            for rows in torch.arange(96).split(16):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimizer.step()
        made.append(L2M.from_optimizer(model, optimizer, 96, 16, CLASSES, (x, y), prior_precision=1.0))
    mixture = Mixture(made)
    each = torch.stack([osc.predict(member, x[:5]).probs for member in made])
    assert_close(osc.predict(mixture, x[:5]).probs, each.mean(0))


@pytest.mark.parametrize("kind", [SGD, Adagrad, Adamax])
def test_optimisers_without_the_moment_are_refused(kind: Any) -> None:
    model, (x, y) = network(), data()
    optimizer = kind(model.parameters(), 0.01)
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    with pytest.raises(ValueError, match=f"{kind.__name__} keeps no average of squared gradients"):
        L2M.from_optimizer(model, optimizer, 48, 16, CLASSES, (x, y))
    with pytest.raises(ValueError, match="SGD keeps no average"):
        run(L2M(network(), CLASSES), optimizer="sgd")


def test_what_it_refuses() -> None:
    model, optimizer, pair = trained()

    def made(number: int = 96, size: int = 16, **options: Any) -> L2M:
        return L2M.from_optimizer(model, optimizer, number, size, CLASSES, pair, **options)

    for options, message in (
        ({"clipped": True}, "clipped gradients"),
        ({"number": 10}, "batch_size=16 of num_data=10"),
        ({"size": 0}, "batch_size=0"),
        ({"prior_precision": "l2"}, "weight decay in the gradient on all parameters, but '.*' has none"),
        ({"number": 95}, "num_data=95, but 96 data were passed"),
        ({"loss_scale": 0.0}, "loss_scale must be positive"),
        ({"prior_precision": "adamw"}, "decoupled weight decay"),
        ({"prior_precision": "validation"}, "needs held-out data"),
        ({"prior_precision": "evidense"}, "did you mean 'evidence'"),
        ({"scaling": "papers"}, "did you mean 'paper'"),
        ({"scaling": "paper"}, "needs the weight decay λ as a number"),
        ({"sampling": "shuffeled"}, "did you mean 'shuffled'"),
        ({"loss_scale": "mse"}, "is for a Gaussian likelihood"),
    ):
        with pytest.raises(ValueError, match=message):
            made(**options)
    with pytest.raises(ValueError, match="made no step yet"):
        L2M.from_optimizer(model, Adam(model.parameters()), 96, 16, CLASSES, pair)
    with pytest.raises(ValueError, match="other parameters than the model"):
        L2M.from_optimizer(network(1), optimizer, 96, 16, CLASSES, pair)
    with pytest.raises(RuntimeError, match="no posterior yet"):
        osc.predict(L2M(network(), CLASSES).posterior, pair[0])
    short = [(pair[0][:7], pair[1][:7])]
    with pytest.raises(ValueError, match="no batch of the data holds 16 data"):
        L2M.from_optimizer(model, optimizer, 96, 16, CLASSES, short, prior_precision=1.0).refresh()
