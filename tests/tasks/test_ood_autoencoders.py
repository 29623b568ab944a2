"""Out-of-distribution scores of autoencoders: by hand from what single networks say, and the same for any batches."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.autoencoders import VAE, Autoencoder, Representation
from osculate.autoencoders.distributions import PEAK
from osculate.tasks import ood
from osculate.tasks._inputs import TrainingInputs
from tests.errors import says

LIKELIHOOD = osc.likelihoods.Gaussian(0.5)
INSIDE = torch.rand(9, 1, 3, 3, dtype=torch.double, generator=torch.Generator().manual_seed(0))
OUTSIDE = 3 * torch.rand(7, 1, 3, 3, dtype=torch.double, generator=torch.Generator().manual_seed(1))
ALL = {"nll", "typicality", "waic", "disagreement", "latent_deviation", "output_deviation", "mean_pixel"}
PLAIN = {"nll", "mean_pixel"}


def net(kind: type[Autoencoder] = Autoencoder) -> Autoencoder:
    encoder, decoder = osc.networks.mlp_coders((1, 3, 3), 2, (5,), codes=2 if kind is VAE else 1)
    return kind(encoder, decoder).double()


def representation(name: str) -> Representation:
    torch.manual_seed(0)
    if name == "ensemble":
        return Representation(osc.posteriors.Ensemble([net() for _ in range(4)], LIKELIHOOD))
    if name == "point":
        return Representation(osc.posteriors.Point(net(), LIKELIHOOD))
    if name == "vae":
        q: Any = osc.posteriors.Point(net(VAE), LIKELIHOOD)
        q.model(encode=INSIDE)
        return Representation(q)
    kind, subset = (VAE, ["decoder"]) if name == "vae, laplace" else (Autoencoder, "all")
    options = {"structure": "diag", "prior": 100.0, "subset": subset}
    return Representation(osc.laplace(net(kind), LIKELIHOOD, (INSIDE, INSIDE), **options, refine=False))


def test_every_score_is_what_its_formula_says_of_the_members() -> None:
    r = representation("ensemble")
    record = ood(r, INSIDE, OUTSIDE, train=INSIDE[:4], batch_size=4)
    assert set(record.inside) - set(TrainingInputs.NAMES) == ALL
    members = r.posterior.members
    found = record.outside["outside"]
    log_p = torch.stack([LIKELIHOOD.log_prob(member(OUTSIDE), OUTSIDE) for member in members])
    density = log_p.exp().mean(0)
    torch.testing.assert_close(found["nll"], -density.log())
    train = torch.stack([LIKELIHOOD.log_prob(member(INSIDE[:4]), INSIDE[:4]) for member in members]).exp().mean(0)
    torch.testing.assert_close(found["typicality"], (-density.log() + train.log().mean()).abs())
    torch.testing.assert_close(found["waic"], log_p.var(0, correction=0) - log_p.mean(0))
    weights = log_p.exp() / log_p.exp().sum(0)
    torch.testing.assert_close(found["disagreement"], 1 / (1 / weights.square().sum(0)))
    codes = torch.stack([member({"encode": OUTSIDE}) for member in members])
    torch.testing.assert_close(found["latent_deviation"], codes.std(0, correction=0).sum(1))
    images = torch.stack([member(OUTSIDE) for member in members])
    torch.testing.assert_close(found["output_deviation"], images.std(0, correction=0).sum((1, 2, 3)))
    torch.testing.assert_close(found["mean_pixel"], OUTSIDE.mean((1, 2, 3)))


def test_disagreement_runs_from_one_over_the_draws_to_one() -> None:
    """Equal members disagree on nothing: the linear one of zero weights, whatever it is given."""
    nets = [net() for _ in range(3)]
    for number, one in enumerate(nets):
        for p in one.parameters():
            p.data.zero_()
        list(one.decoder.parameters())[-1].data[0] = (0.0, 1e-9, 9.0)[number]
    record = ood(Representation(osc.posteriors.Ensemble(nets, LIKELIHOOD)), INSIDE, OUTSIDE, scores=["disagreement"])
    torch.testing.assert_close(record.inside["disagreement"], torch.full((9,), 0.5).double())
    far = OUTSIDE.clone()
    far[:, 0, 0, 0] = 9.0
    record = ood(Representation(osc.posteriors.Ensemble(nets, LIKELIHOOD)), INSIDE, far, scores=["disagreement"])
    torch.testing.assert_close(record.outside["outside"]["disagreement"], torch.ones(7).double())
    assert record.auroc["outside"]["disagreement"] == 1.0


@pytest.mark.parametrize("name", ["diag", "vae, laplace"])
@pytest.mark.filterwarnings("ignore:networks sampled")
def test_one_set_of_networks_scores_all_data_in_whatever_batches(name: str) -> None:
    """Of a VAE the codes are drawn anew with the batch, so that only what they do not enter agrees."""
    r = representation(name)
    exact = {"latent_deviation", "mean_pixel"} | (ALL if name == "diag" else set())
    records = [
        ood(
            r,
            INSIDE,
            {"same": INSIDE},
            train=INSIDE,
            samples=6,
            batch_size=size,
            generator=torch.Generator().manual_seed(3),
        )
        for size in (2, 4, 9)
    ]
    for record in records:
        assert set(record.inside) - set(TrainingInputs.NAMES) == ALL | {"relative_deviation"}
        for score, values in record.inside.items():
            torch.testing.assert_close(values, record.outside["same"][score], rtol=0, atol=0)
            if score in exact:
                torch.testing.assert_close(values, records[0].inside[score])


@pytest.mark.filterwarnings("ignore:networks sampled")
def test_scores_of_drawn_networks_are_those_of_the_representation() -> None:
    r = representation("diag")
    record = ood(r, INSIDE, OUTSIDE, samples=8, generator=torch.Generator().manual_seed(5), batch_size=4)
    density = r.log_prob(OUTSIDE, 8, torch.Generator().manual_seed(5))
    torch.testing.assert_close(record.outside["outside"]["nll"], -density)
    code = r.encode(INSIDE, 8, torch.Generator().manual_seed(5))
    torch.testing.assert_close(record.inside["latent_deviation"], code.variance.sqrt().sum(1))


@pytest.mark.filterwarnings("ignore:networks sampled")
def test_the_generator_moves_on_and_without_one_torch_is_asked() -> None:
    r, generator = representation("diag"), torch.Generator().manual_seed(0)
    first, second = (ood(r, INSIDE, OUTSIDE, samples=3, generator=generator).inside["nll"] for _ in range(2))
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    first = ood(r, INSIDE, OUTSIDE, samples=3).inside["nll"]
    torch.manual_seed(1)
    assert torch.equal(first, ood(r, INSIDE, OUTSIDE, samples=3).inside["nll"])


@pytest.mark.parametrize(
    ("name", "expected"), [("point", PLAIN), ("vae", ALL - {"typicality"}), ("ensemble", ALL - {"typicality"})]
)
def test_scores_without_a_spread_or_training_data_are_left_out_of_the_default(name: str, expected: set[str]) -> None:
    assert set(ood(representation(name), INSIDE, OUTSIDE, samples=5).inside) == expected


def test_typicality_also_finds_what_is_too_probable() -> None:
    r = representation("point")
    with torch.no_grad():
        perfect = r.posterior.network(INSIDE)
        for _ in range(200):  # towards a fixed point of the network
            perfect = r.posterior.network(perfect)
    record = ood(r, INSIDE, perfect, train=INSIDE, scores=("nll", "typicality"))
    assert record.auroc["outside"]["nll"] == 0.0
    assert record.auroc["outside"]["typicality"] > 0.8


def test_images_of_one_grey_and_single_inputs_are_scored() -> None:
    record = ood(representation("ensemble"), INSIDE[:1], torch.zeros(1, 1, 3, 3), train=INSIDE[:1])
    for score in ALL:
        assert record.inside[score].shape == record.outside["outside"][score].shape == (1,)
        assert record.outside["outside"][score].isfinite().all()
        assert record.auroc["outside"][score] in (0.0, 0.5, 1.0)
        assert record.auroc_error["outside"][score] != record.auroc_error["outside"][score]  # nan: one says nothing
    assert record.inside["typicality"] == 0


def test_the_baseline_is_there_for_classifiers_on_request() -> None:
    point = osc.posteriors.Point(nn.Linear(3, 2), osc.likelihoods.Categorical())
    x = torch.rand(6, 3)
    record = ood(point, x, x + 2, scores=("mean_pixel",))
    torch.testing.assert_close(record.inside["mean_pixel"], x.double().mean(1))
    assert record.auroc["outside"]["mean_pixel"] == 1.0


NAN = INSIDE.clone()
NAN[2, 0, 1, 1] = torch.nan


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda r: ood(r, INSIDE, OUTSIDE, scores=("typicality",)), ["'typicality'", "train="]),
        (lambda r: ood(r, INSIDE, OUTSIDE, scores=("waic",)), ["'waic'", "spread", "Point"]),
        (lambda r: ood(r, INSIDE, OUTSIDE, scores=("nll", "output_deviation")), ["'output_deviation'", "Point"]),
        (lambda r: ood(r, INSIDE, OUTSIDE, scores=("entropy",)), ["'entropy'", "'nll'"]),
        (lambda r: ood(r, INSIDE, {"a": OUTSIDE, "b": NAN}), ["row 2", "'b'", "nan"]),
        (lambda r: ood(r, INSIDE, OUTSIDE, train=NAN), ["row 2", "train", "nan"]),
        (lambda r: ood(r, INSIDE[:0], OUTSIDE), ["inside inputs are empty"]),
        (lambda r: ood(r, INSIDE, OUTSIDE, train=INSIDE[:0]), ["training inputs are empty"]),
        (lambda r: ood(r, INSIDE, {"a": OUTSIDE[:, :, :2]}), ["'a'", "(1, 2, 3)", "(1, 3, 3)"]),
        (lambda r: ood(r, INSIDE, OUTSIDE, samples=0), ["samples=0"]),
        (lambda r: ood(r, INSIDE, OUTSIDE, batch_size=0), ["batch_size must be", "got 0"]),
    ],
)
def test_what_cannot_be_scored_is_explained(call: Callable[[Any], Any], words: list[str]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        call(representation("point") if "samples=0" not in words else representation("diag"))


def test_options_of_the_other_kind_of_model_are_refused() -> None:
    with pytest.raises(TypeError, match=says("'link'", "Representation")):
        ood(representation("point"), INSIDE, OUTSIDE, link="probit")


def test_batches_are_small_enough_for_the_images_of_all_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    plain = Representation.represent

    def seen(self: Representation, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        sizes.append(len(x))
        return plain(self, x, *args, **kwargs)

    monkeypatch.setattr(Representation, "represent", seen)
    monkeypatch.setattr(
        "osculate.autoencoders.distributions.budget", lambda *_: 3 * PEAK * 10 * 9 * 8
    )  # three images of ten draws
    ood(representation("point"), INSIDE, OUTSIDE, samples=10, scores=("nll",))
    assert sizes == [3, 3, 3, 3, 3, 1]
