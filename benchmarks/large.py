"""``python -m benchmarks.large``: large networks, each in a process of its own: seconds, units, peak resident memory.

The networks have random weights and the data are random: cost does not depend on either. One unit is a forward and
backward pass over the same data.
"""

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import osculate as osc
from benchmarks import peers
from benchmarks.__main__ import THREADS, cpu
from benchmarks.markdown import large_markdown
from benchmarks.timing import seconds
from experiments.cost import keep_freed_memory

#: Bytes that no case may take, the interpreter and torch included.
MEMORY = 6e9
#: Units of a fit that the budgets allow, by curvature or structure; of the last layer, and of its predictive.
FIT = {"fisher": 2.0, "approx_diag": 1.6, "last_layer": 5.0}
LAST_LAYER_PREDICT = 2.0
#: Cost of a sampled network in forward passes.
SAMPLED = 1.3
#: Prior precision: none is tuned here.
PRECISION = 100.0


@dataclass(frozen=True)
class Subject:
    """A network and its data.

    Attributes:
        title: As it stands in the table.
        build: Makes the network.
        data: Makes (x, y) of that many data.
        likelihood: p(y|f).
        batch: Data at a time.
        count: N.
    """

    title: str
    build: Callable[[], nn.Module]
    data: Callable[[int], tuple[Tensor, Tensor]]
    likelihood: osc.likelihoods.Likelihood
    batch: int
    count: int


@dataclass(frozen=True)
class Case:
    """What is done with a subject.

    Attributes:
        subject: By its key.
        structure: Of the posterior.
        curvature: Of the posterior.
        subset: The parameters that count.
        way: How it predicts: a key of :data:`WAYS`.
        points: Inputs that are predicted; None for all data.
        samples: Draws, where the way takes any.
    """

    subject: str
    structure: str
    curvature: str
    subset: str | tuple[str, ...] = "all"
    way: str = "probit"
    points: int | None = 4
    samples: int | None = None

    @property
    def fit_bound(self) -> float | None:
        """Units that the budgets allow for the fit."""
        if self.subset == "last_layer":
            return FIT["last_layer"]
        return FIT.get(self.structure, FIT.get(self.curvature))

    def predict_bound(self, forward: float) -> float | None:
        """Units that the budgets allow for the prediction of one datum, with a forward pass in units."""
        if self.way == "sampled networks":
            return SAMPLED * forward * (self.samples or 1)
        return LAST_LAYER_PREDICT if self.subset == "last_layer" else None


def _labels(shape: tuple[int, ...], classes: int, n: int) -> Tensor:
    return torch.randint(classes, (n, *shape))


def _images(side: int, classes: int, n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 3, side, side), _labels((), classes, n)


def _pixels(side: int, classes: int, n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 3, side, side), _labels((side, side), classes, n)


def _reconstruction(side: int, n: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 3, side, side)
    return x, x


def _tokens(context: int, vocabulary: int, n: int) -> tuple[Tensor, Tensor]:
    return _labels((context,), vocabulary, n), _labels((context,), vocabulary, n)


CLASSES, PIXEL_CLASSES, MANY, VOCABULARY, CONTEXT = 10, 4, 1000, 8192, 64
CLASSIFIER = osc.likelihoods.Categorical()

SUBJECTS: dict[str, Subject] = {
    "unet": Subject(
        "U-Net, 64² × 3 → 64² × 4 classes",
        partial(osc.networks.UNet, PIXEL_CLASSES, 3),
        partial(_pixels, 64, PIXEL_CLASSES),
        osc.likelihoods.Categorical(class_axis=1),
        16,
        128,
    ),
    "autoencoder": Subject(
        "autoencoder, 128² × 3",
        partial(osc.networks.ConvAutoencoder, (3, 128, 128), 3, latent=32, depth=4),
        partial(_reconstruction, 128),
        osc.likelihoods.Gaussian(1.0),
        16,
        128,
    ),
    "resnet": Subject(
        "ResNet-50, 64² × 3 → 10 classes",
        partial(osc.networks.ResNet, CLASSES),
        partial(_images, 64, CLASSES),
        CLASSIFIER,
        16,
        64,
    ),
    "resnet_1000": Subject(
        "ResNet-50, 224² × 3 → 1000 classes",
        partial(osc.networks.ResNet, MANY),
        partial(_images, 224, MANY),
        CLASSIFIER,
        8,
        16,
    ),
    "vit": Subject(
        "ViT-Tiny, 32² × 3 → 10 classes",
        partial(osc.networks.ViT, CLASSES),
        partial(_images, 32, CLASSES),
        CLASSIFIER,
        32,
        128,
    ),
    "gpt": Subject(
        f"GPT, {CONTEXT} tokens → {CONTEXT} × {VOCABULARY} classes",
        partial(osc.networks.GPT, VOCABULARY, CONTEXT, width=128, depth=4, heads=4),
        partial(_tokens, CONTEXT, VOCABULARY),
        CLASSIFIER,
        16,
        128,
    ),
}

BODY = ("token", "position", "blocks", "norm")

CASES: dict[str, Case] = {
    "unet-diag": Case("unet", "diag", "fisher", way="variance map", samples=16),
    "unet-kron": Case("unet", "kron", "fisher", way="variance map", samples=16),
    "unet-approx": Case("unet", "approx_diag", "ggn", way="sampled networks", points=None, samples=16),
    "autoencoder-approx": Case("autoencoder", "approx_diag", "ggn", way="variance map", samples=16),
    "autoencoder-diag": Case("autoencoder", "diag", "fisher", way="variance map", samples=16),
    "resnet-diag": Case("resnet", "diag", "fisher"),
    "resnet-approx": Case("resnet", "approx_diag", "ggn", way="sampled networks", points=None, samples=4),
    "resnet-last": Case("resnet_1000", "kron", "fisher", subset="last_layer", points=8),
    "vit-diag": Case("vit", "diag", "fisher"),
    "vit-kron": Case("vit", "kron", "fisher"),
    "gpt-diag": Case("gpt", "diag", "fisher", way="sampled networks", points=None, samples=8),
    "gpt-approx": Case("gpt", "approx_diag", "ggn", way="sampled networks", points=None, samples=8),
    "gpt-kron": Case("gpt", "kron", "fisher", subset=BODY, way="sampled networks", points=None, samples=8),
}


def _probit(q: osc.posteriors.Gaussian, x: Tensor, samples: int | None) -> object:
    return osc.predict(q, x, link="probit")


def _variance_map(q: osc.posteriors.Gaussian, x: Tensor, samples: int | None) -> object:
    return osc.sample_functions(q, x, samples=samples or 1).var(0)


def _sampled(q: osc.posteriors.Gaussian, x: Tensor, samples: int | None) -> object:
    return osc.predict(q, x, via="sampled", samples=samples or 1)


#: How a posterior predicts.
WAYS: dict[str, Callable[[osc.posteriors.Gaussian, Tensor, int | None], object]] = {
    "probit": _probit,
    "variance map": _variance_map,
    "sampled networks": _sampled,
}


def measure(case: Case, scale: int = 1) -> dict[str, Any]:
    """Fit and predict, in this process.

    Args:
        case: What.
        scale: The data are this many times fewer; for a quick look.
    """
    base = peak()
    subject = SUBJECTS[case.subject]
    torch.manual_seed(0)
    model = subject.build().eval()
    x, y = subject.data(max(subject.batch, subject.count // scale))
    batches = list(zip(x.split(subject.batch), y.split(subject.batch), strict=True))

    def training_pass(batches: list) -> None:
        for inputs, targets in batches:
            model.zero_grad(set_to_none=True)
            (-subject.likelihood.log_prob(model(inputs), targets).sum()).backward()

    training_pass(batches[:1])  # the first call pays for memory and kernels
    unit = least(lambda: training_pass(batches))
    model.zero_grad(set_to_none=True)
    points = x[: case.points]
    forward = least(lambda: _forward(model, batches)) / unit
    training = peak()
    found: list[osc.posteriors.Gaussian] = []
    names = case.subset if isinstance(case.subset, str) else list(case.subset)

    def fit(batches: list) -> None:
        options = {"structure": case.structure, "curvature": case.curvature, "subset": names, "prior": PRECISION}
        found[:] = [osc.laplace(model, subject.likelihood, batches, **options, refine=False)]

    fit(batches[:1])  # as the unit: the first call is not counted; it makes the plan that the others use
    fitting = least(lambda: fit(batches))
    (q,) = found
    plan = least(lambda: osc.curvature.plan.make_plan(q.network, batches[0][0]))
    factorise = seconds(lambda: osc.log_evidence(q))
    fitted = peak()
    WAYS[case.way](q, points, 1)
    predicting = least(lambda: WAYS[case.way](q, points, case.samples)) / len(points)
    datum = unit / len(x)
    return {
        "title": subject.title,
        **asdict(case),
        "parameters": q.mean.numel(),
        "data": len(x),
        "unit": unit,
        "plan": plan,
        "fit": fitting + plan,
        "fit_units": fitting / unit,
        "fit_bound": case.fit_bound,
        "factorise": factorise,
        "predict": predicting,
        "predict_units": predicting / datum,
        "predict_bound": case.predict_bound(forward),
        "memory": {"base": base, "training": training, "fit": fitted, "peak": peak()},
    }


def least(work: Callable[[], object], times: int = 3) -> float:
    """The least CPU seconds of a few calls: what other processes add is left out."""
    return min(seconds(work) for _ in range(times))


def _forward(model: nn.Module, batches: list) -> None:
    with torch.no_grad():
        for inputs, _ in batches:
            model(inputs)


def peak() -> int:
    """The most memory that this process has held, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def met(row: dict[str, Any]) -> bool:
    """Whether a row meets its budgets of time and memory."""
    times = [(row["fit_units"], row["fit_bound"]), (row["predict_units"], row["predict_bound"])]
    return row["memory"]["peak"] <= MEMORY and all(bound is None or value <= bound for value, bound in times)


def in_a_process(name: str, scale: int) -> dict[str, Any]:
    """The record of one case, from a fresh process.

    Raises:
        RuntimeError: the process failed; the message ends with what it said.
    """
    command = [sys.executable, "-m", "benchmarks.large", "--child", name, "--scale", str(scale)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).resolve().parent.parent)
    if done.returncode:
        raise RuntimeError(f"the case {name} failed:\n{done.stderr[-2000:]}")
    record = json.loads(done.stdout.splitlines()[-1])
    return {"name": name, **record, "met": met(record)}


def main(arguments: list[str] | None = None) -> int:
    """Measure, write the record, print the table; 1 where ``--strict`` and a budget is missed."""
    options = _parser().parse_args(arguments)
    if options.child:
        torch.set_num_threads(THREADS)
        keep_freed_memory()
        print(json.dumps(measure(CASES[options.child], options.scale)))
        return 0
    if options.markdown:
        print(large_markdown(json.loads(options.markdown.read_text())))
        return 0
    unknown = set(options.cases) - set(CASES)
    if unknown:
        sys.exit(f"no case is called {', '.join(sorted(unknown))}. Known: {', '.join(CASES)}")
    rows = []
    for name in options.cases or CASES:
        print(name, file=sys.stderr, flush=True)
        rows.append(in_a_process(name, options.scale))
    record = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu(),
        "threads": THREADS,
        "versions": peers.versions(),
        "clock": "process CPU time; memory: peak resident set of the process",
        "limit": MEMORY,
        "rows": rows,
    }
    if options.json:
        temporary = options.json.with_suffix(".part")
        temporary.write_text(json.dumps(record, indent=2) + "\n")
        temporary.replace(options.json)
    print(large_markdown(record))
    missed = [row["name"] for row in rows if not row["met"]]
    print(f"missed: {', '.join(missed)}" if missed else "every budget is met")
    return int(options.strict and bool(missed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"all by default. Known: {', '.join(CASES)}")
    parser.add_argument("--json", type=Path, help="write the record here")
    parser.add_argument("--markdown", type=Path, help="print the table of this record, measure nothing")
    parser.add_argument("--scale", type=int, default=1, help="this many times fewer data, for a quick look")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a budget is missed")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
