"""Several processes that train together reach the posterior of one process with all of their data."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.methods._share import Share
from osculate.methods.online_laplace import OnlineUpdates
from osculate.randomness import seeded
from tests.laws import assert_close
from tests.processes import Processes, kill_after, processes

N, BATCH = 24, 4


@pytest.fixture(scope="module")
def two() -> Iterator[Processes]:
    with processes(2) as found:
        yield found


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def problem() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, 4, generator=generator, dtype=torch.double)
    return x, torch.randint(3, (N,), generator=generator)


def batches(rank: int, size: int, uneven: bool) -> list[Any]:
    """Batches of a process; those of one are the joint batches of two."""
    joint = list(zip(*(each.split(2 * BATCH) for each in problem()), strict=True))
    cut = BATCH - 1 if uneven else BATCH
    if size == 1:  # the second of uneven processes has no third batch
        return [*joint[:2], tuple(each[:cut] for each in joint[2])] if uneven else joint
    own = [tuple(each[:cut] if rank == 0 else each[cut:] for each in batch) for batch in joint]
    return own[:2] if uneven and rank else own


def online(structure: str, **settings: Any) -> Any:
    """A method whose weights hardly vary, so that its running curvature depends on the data alone."""
    made = OnlineUpdates(recompute=False, memory=0.9, **settings)
    return lambda model, p: osc.methods.OnlineLaplace(model, p, 1.0, made, structure, temperature=1e-26)


METHODS: dict[str, Any] = {
    "map": osc.methods.MAP,
    "l2m": osc.methods.L2M,
    "swag": lambda model, p: osc.methods.SWAG(model, p, rank=2, burn_in=0.2),
    "marginal_likelihood": osc.methods.MarginalLikelihood,
    "ivon": osc.methods.IVON,
    "ivon squared": lambda model, p: osc.methods.IVON(model, p, hessian="squared"),
    "vogn": osc.methods.VOGN,
    "online diag": online("diag"),
    "online diag at the mean": online("diag", at="mean", every=2),
    "online approx_diag": online("approx_diag"),
    "online kron": online("kron"),
}


def same_draws(share: Share, step: int) -> Any:
    return seeded(step)


def trained(rank: int, size: int, method: str, uneven: bool) -> dict[str, Tensor]:
    warnings.simplefilter("ignore")
    Share.same_draws = same_draws  # type: ignore[method-assign]  # also where there is one process
    made = METHODS[method](network(), osc.likelihoods.Categorical())
    done = osc.train(made, batches(rank, size, uneven), epochs=5, lr=0.05, progress=False, schedule="constant")
    q, x = done.posterior, problem()[0]
    found = {name: value.detach() for name, value in done.model.state_dict().items()}
    found["loss"] = torch.tensor([row["train_loss"] for row in done.history])
    if isinstance(q, osc.posteriors.Gaussian):
        q = q.replace(temperature=1.0)
        found |= {"variances": osc.functional_variance(q, x), "N": torch.tensor(q.num_data)}
        found["evidence"] = osc.log_evidence(q)
    elif method == "swag":
        found["variances"] = q.variance()
    return found


@pytest.mark.parametrize("uneven", [pytest.param(False, marks=pytest.mark.release), True])
@pytest.mark.parametrize(
    "method", [name if name == "map" else pytest.param(name, marks=pytest.mark.release) for name in METHODS]
)
def test_steps_of_two_processes_are_those_of_one(two: Processes, method: str, uneven: bool) -> None:
    expected = trained(0, 1, method, uneven)
    for found in two.run(trained, method, uneven).values():
        assert isinstance(found, dict), found
        for name, value in expected.items():
            assert_close(found[name], value, 1e-9)


RANDOM: dict[str, Any] = {
    "online with samples": lambda model, p: osc.methods.OnlineLaplace(model, p, learn="prior"),
    "online from gradients": lambda model, p: osc.methods.OnlineLaplace(
        model, p, 1.0, OnlineUpdates(source="gradient", recompute=False), "diag"
    ),
    "variational_laplace": osc.methods.VariationalLaplace,
    "learned variances": lambda model, p: osc.methods.VariationalLaplace(model, p, sigma="learned"),
    "mean_field_vi": osc.methods.MeanFieldVI,
    "mean_field_vi of weights": lambda model, p: osc.methods.MeanFieldVI(model, p, local=False),
}


def state_of(rank: int, size: int, method: str) -> dict[str, Tensor]:
    """State and posterior after a training with random numbers, and the NLL."""
    warnings.simplefilter("ignore")
    made = RANDOM[method](network(), osc.likelihoods.Categorical())
    data, held_out = batches(rank, size, uneven=True), problem()
    done = osc.train(made, data, epochs=20, lr=0.02, progress=False, validation=held_out)
    state = dict(made.state_dict()) | {"variances": osc.functional_variance(done.posterior, held_out[0])}
    return state | {"nll": torch.tensor(done.history[-1]["validation_nll"])}


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=[pytest.mark.release] * (name == "online with samples")) for name in RANDOM],
)
def test_processes_with_random_numbers_of_their_own_agree(two: Processes, method: str) -> None:
    alone, (mine, theirs) = state_of(0, 1, method), two.run(state_of, method).values()
    assert isinstance(mine, dict), mine
    assert isinstance(theirs, dict), theirs
    for name, value in mine.items():
        assert torch.equal(value, theirs[name]), name
    assert abs(mine["nll"] - alone["nll"]) < 0.05


def members(rank: int, size: int, method: str) -> Any:
    torch.manual_seed(2)
    kind = {"ensemble": osc.methods.DeepEnsemble, "priors": osc.methods.RandomizedPriors}[method]
    made = kind([nn.Linear(4, 3).double() for _ in range(3)], osc.likelihoods.Categorical())
    done = osc.train(made, problem(), epochs=3, batch_size=8, lr=0.05, progress=False)
    return osc.predict(done, problem()[0]).probs


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ensemble", "priors"])
def test_members_are_shared_out(two: Processes, method: str) -> None:
    expected = members(0, 1, method)
    for found in two.run(members, method).values():
        assert isinstance(found, Tensor), found
        assert torch.equal(found, expected)


def chains(rank: int, size: int, folder: str) -> Any:
    torch.manual_seed(2)
    x, y = problem()
    made = osc.methods.HMC(nn.Linear(4, 1).double(), osc.likelihoods.Gaussian(0.5), 1.0, chains=3, warmup=200)
    data = x, x[:, :1] + y[:, None] / 3
    osc.train(made, data, epochs=600, progress=False, folder=folder)
    q = made.result()
    return q.thetas


@pytest.mark.release
def test_chains_are_shared_out(two: Processes, tmp_path: Path) -> None:
    mine, theirs = two.run(chains, str(tmp_path)).values()
    assert mine.shape == (3, 400, 5)
    assert torch.equal(mine, theirs)
    assert len({float(chain[0, 0]) for chain in mine}) == 3


def failed(rank: int, size: int, what: str) -> Any:
    x, y = problem()
    model, p = network(), osc.likelihoods.Categorical()
    options: dict[str, Any] = {"epochs": 2, "progress": False, "batch_size": 4}
    rows = slice(0, 12) if rank == 0 else slice(12, 24)
    data: Any = x[rows], y[rows]
    method: Any = osc.methods.MAP(model, p)
    match what:
        case "same":
            data = x, y
        case "none" if rank:
            data = []
        case "not finite" if rank:
            x[20, 0] = torch.nan
        case "late" if rank:
            data = Late([(x[12:16], y[12:16])] * 3)
        case "loss":
            options |= {"lr": 1e200, "epochs": 5}
        case "wrapped":
            method = osc.methods.MAP(nn.parallel.DistributedDataParallel(model), p)
        case "full batch":
            method = osc.methods.LevenbergMarquardt(model, p)
        case "different members":
            method = osc.methods.DeepEnsemble([network(), other()], p)
        case "few members":
            method, data = osc.methods.HMC(nn.Linear(4, 3).double(), p, chains=1), (x, y)
        case "device":
            options["device"] = "cpu:0"
    try:
        osc.train(method, data, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "trained"


def other() -> nn.Module:
    model = network()
    with torch.no_grad():
        model[0].weight.mul_(2)
    return model


class Late(list):
    """Batches whose second pass fails at its second batch."""

    passes = 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        for number, batch in enumerate(list.__iter__(self)):
            if self.passes > 4 and number:
                raise OSError("the disk is gone")
            yield batch


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("same", ["ValueError: all processes have the same 24 data"] * 2),
        ("none", ["process 1 of 2 failed: ValueError: the data hold no batch", "ValueError: the data hold no batch"]),
        ("not finite", ["process 1 of 2 failed: ValueError: x of batch 2 holds nan", "x of batch 2 holds nan"]),
        ("late", ["process 1 of 2 failed: OSError: the disk is gone", "OSError: the disk is gone"]),
        ("loss", ["FloatingPointError: the loss is"] * 2),
        ("wrapped", ["the network is in DistributedDataParallel already"] * 2),
        ("full batch", ["LevenbergMarquardt takes its steps on all data at once, in one process"] * 2),
        ("different members", ["each process trains its own part of DeepEnsemble on all data"] * 2),
        ("few members", ["1 chains are trained by at most 1 processes"] * 2),
        ("device", ["device='cpu:0' is one device for 2 processes"] * 2),
    ],
)
def test_what_cannot_be_trained_together_is_refused_in_all(two: Processes, what: str, words: list[str]) -> None:
    found = two.run(failed, what)
    for rank, expected in enumerate(words):
        assert expected in found[rank]


def endless(rank: int, size: int, folder: str) -> str:
    method = osc.methods.MAP(network(), osc.likelihoods.Categorical())
    try:
        osc.train(method, batches(rank, size, uneven=False), epochs=10**6, progress=False, folder=folder)
    except ConnectionError as error:
        return str(error)
    return "trained"


@pytest.mark.slow
def test_a_process_that_dies_in_training_is_named(tmp_path: Path) -> None:
    with processes(2) as group:
        victim = group.each[1].pid
        assert victim is not None
        kill_after(victim, tmp_path / "training.csv")
        found = group.run(endless, str(tmp_path), answers=1)
        assert "process 1 of 2 did not take part in a sum" in found[0]


def resumed(rank: int, size: int, folder: str, epochs: int, resume: bool) -> dict[str, Tensor]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.1), nn.Linear(6, 3)).double()
    model.add_module("unused", nn.Linear(1, 1))
    model.forward = lambda x: model[:5](x)  # type: ignore[method-assign]
    data = batches(rank, size, uneven=True)
    done = osc.train(
        osc.methods.MAP(model, osc.likelihoods.Categorical()),
        data,
        epochs=epochs,
        schedule="constant",
        progress=False,
        folder=folder,
        resume=resume,
        validation=data,
    )
    assert len(done.history) == epochs
    return done.model.state_dict() | {"nll": torch.tensor(done.history[-1]["validation_nll"])}


@pytest.mark.slow
def test_an_interrupted_training_goes_on_with_the_same_or_another_number(two: Processes, tmp_path: Path) -> None:
    whole = two.run(resumed, str(tmp_path / "whole"), 4, False)
    assert isinstance(whole[0], dict), whole[0]
    for name, value in whole[0].items():
        assert torch.equal(value, whole[1][name]), name
    two.run(resumed, str(tmp_path / "half"), 2, False)
    again = two.run(resumed, str(tmp_path / "half"), 4, True)
    for name, value in whole[0].items():
        assert torch.equal(again[0][name], value), name
    assert len((tmp_path / "half/training.csv").read_text().splitlines()) == 5
    one = resumed(0, 1, str(tmp_path / "half"), 6, True)
    assert one["nll"] < whole[0]["nll"]


def alone_in_a_group(rank: int, size: int, method: str) -> Any:
    """A training in the first process alone, with the data of one."""
    if rank:
        return None
    warnings.simplefilter("ignore")
    made = METHODS[method](network(), osc.likelihoods.Categorical())
    q = osc.train(made, problem(), epochs=5, batch_size=8, progress=False, distributed=False).posterior
    return q.num_data, q.processes.alone


@pytest.mark.slow
@pytest.mark.parametrize("method", ["l2m", "marginal_likelihood", "ivon", "online diag"])
def test_one_process_of_a_group_trains_alone(two: Processes, method: str) -> None:
    assert two.run(alone_in_a_group, method)[0] == (N, True)
