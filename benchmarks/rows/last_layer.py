"""The last layer of a network with a thousand classes: the fit with one sampled label, and the probit predictive."""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import osculate as osc
from benchmarks import timing
from benchmarks.networks import plain
from benchmarks.result import Result, row
from benchmarks.timing import Effort, flops, ratio

CLASSES, DATA, BATCH = 1000, 1000, 100
#: Bounds in units: the fit, and the predictive for each point.
FIT, PREDICT = 5.0, 2.0


@lru_cache
def setting() -> tuple[nn.Module, Tensor, Tensor]:
    """A LeNet with 1000 logits, and random images."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(DATA, 1, 28, 28, generator=generator)
    y = torch.randint(CLASSES, (DATA,), generator=generator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = plain(osc.networks.LeNet(outputs=CLASSES)).eval()
    return model.to(timing.device), x.to(timing.device), y.to(timing.device)


def training_pass() -> None:
    """One unit: forward and backward once through all data, all parameters."""
    model, x, y = setting()
    for inputs, targets in zip(x.split(BATCH), y.split(BATCH), strict=True):
        model.zero_grad()
        F.cross_entropy(model(inputs), targets, reduction="sum").backward()


def posterior() -> osc.posteriors.Gaussian:
    """The posterior over the last layer."""
    model, x, y = setting()
    batches = list(zip(x.split(BATCH), y.split(BATCH), strict=True))
    return osc.laplace(
        model, osc.likelihoods.Categorical(), batches, curvature="fisher", subset="last_layer", prior=1.0, refine=False
    )


@row("last-layer-fit", anywhere=True)
def fit(effort: Effort) -> Result:
    """KFAC with one sampled label."""
    spread = ratio(training_pass, posterior, effort)
    name = "fit last layer kron fisher, 1000 classes"
    return Result(name, "forward + backward, same data", spread, FIT, limit=flops(training_pass, posterior))


@row("last-layer-predict", anywhere=True)
def predict(effort: Effort) -> Result:
    """Linearised, probit link."""
    _, x, _ = setting()
    q = posterior()
    osc.log_evidence(q)

    def ours() -> None:
        osc.predict(q, x, link="probit")

    spread = ratio(training_pass, ours, effort)
    name = "predict probit last layer kron, 1000 classes"
    return Result(name, "forward + backward, same points", spread, PREDICT, limit=flops(training_pass, ours))
