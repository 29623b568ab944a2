"""Classification by codes of few labelled images: nearest neighbours, and fair comparisons."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn

import osculate as osc
from osculate.autoencoders import ELBO, VAE, Autoencoder, Representation
from osculate.tasks import semi_supervised as module_function
from osculate.tasks.semi_supervised import (
    SemiSupervisedRecord,
    _best,
    _splits,
    _votes,
    neighbour_probabilities,
    semi_supervised,
)
from tests.errors import says

NOISE = osc.likelihoods.Gaussian(0.3)


def blobs(n: int, seed: int, spread: float = 1.0) -> tuple[Tensor, Tensor]:
    """Three classes around the corners of a triangle, in 4 dimensions."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(3).repeat_interleave(n)
    centres = torch.eye(3, 4) * 2
    return centres[y] + spread * torch.randn(3 * n, 4, generator=generator), y


POOL, TEST = blobs(30, 0), blobs(20, 1)


def identity(size: int = 4) -> Representation:
    """Codes that are the data."""
    return Representation(osc.posteriors.Point(Autoencoder(nn.Identity(), nn.Linear(size, size)), NOISE))


def drawn() -> Representation:
    torch.manual_seed(0)
    net, x = Autoencoder(nn.Linear(4, 2), nn.Linear(2, 4)), POOL[0]
    return Representation(osc.laplace(net, NOISE, (x, x), structure="diag", prior=3.0, refine=False))


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("size", [2, 20])
def test_votes_are_those_of_scikit_learn(k: int, size: int) -> None:
    rng = np.random.default_rng(0)
    labelled, queries = rng.normal(size=(3, 1, 24, size)), rng.normal(size=(3, 1, 50, size))
    kinds = np.arange(4).repeat(6)
    expected = sum(
        KNeighborsClassifier(k).fit(z[0], kinds).predict_proba(q[0]) for z, q in zip(labelled, queries, strict=True)
    )
    (votes,) = _votes(labelled, kinds, queries, (k,), 4)
    np.testing.assert_allclose(votes / k, expected)
    np.testing.assert_array_equal(_votes(labelled, kinds, queries, (1, k, 7), 4)[1], votes)


def test_new_images_have_the_classes_of_their_neighbours() -> None:
    few = torch.tensor([0, 1, 30, 31, 60])  # of classes 0, 0, 1, 1 and 2
    x, y, new = POOL[0][few], POOL[1][few], TEST[0]
    found = neighbour_probabilities(identity(), x, y, new, neighbours=3)
    expected = KNeighborsClassifier(3).fit(x.numpy(), y.numpy()).predict_proba(new.numpy())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    shares = neighbour_probabilities(drawn(), x, y, new, samples=4)
    assert torch.equal(shares * 4, (shares * 4).round())
    torch.testing.assert_close(shares.sum(1), torch.ones(60))
    for wrong in (y - 1, y[:, None], y[:2]):
        with pytest.raises(ValueError, match="do not fit: give"):
            neighbour_probabilities(identity(), x, wrong, new)
    with pytest.raises(TypeError, match="torch.uint8"):
        neighbour_probabilities(identity(), x, y, new.byte())
    with pytest.raises(ValueError, match="no 6 neighbours"):
        neighbour_probabilities(identity(), x, y, new, neighbours=6)


def test_pooled_votes_are_those_of_k_times_s_codes_of_any_network() -> None:
    rng = np.random.default_rng(0)
    labelled, queries = rng.normal(size=(1, 5, 12, 2)), rng.normal(size=(1, 4, 9, 2))
    kinds = np.arange(3).repeat(4)
    found = KNeighborsClassifier(2 * 5).fit(labelled.reshape(-1, 2), np.tile(kinds, 5))
    expected = sum(found.predict_proba(q) for q in queries[0])
    (votes,) = _votes(labelled, kinds, queries, (2,), 3)
    np.testing.assert_allclose(votes / 10, expected)


def test_many_queries_are_looked_up_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    arguments = rng.normal(size=(2, 1, 12, 2)), np.arange(3).repeat(4), rng.normal(size=(2, 1, 50, 2)), (1, 3), 3
    whole = _votes(*arguments)
    monkeypatch.setitem(_votes.__globals__, "ROWS", 7)
    np.testing.assert_array_equal(_votes(*arguments), whole)


def test_accuracy_is_that_of_scikit_learn_on_the_same_splits() -> None:
    record = semi_supervised(identity(), *POOL, TEST, labels=(3, 8), repeats=3, neighbours=(4,))
    splits = _splits(POOL[1], 3, 8, 3, 0)
    for row, number in enumerate((3, 8)):
        for repeat in range(3):
            rows = splits[repeat, :, :number].flatten()
            found = KNeighborsClassifier(4).fit(POOL[0][rows], POOL[1][rows])
            expected = found.score(TEST[0], TEST[1])
            assert float(record.accuracy["representation"][row, repeat]) == pytest.approx(expected)


def test_codes_of_labelled_and_test_images_are_compared_network_by_network() -> None:
    """Reflected copies of one latent space: each is as good as the other, and together they are useless."""
    nets = [Autoencoder(nn.Linear(4, 4, bias=False), nn.Linear(4, 4)) for _ in range(2)]
    with torch.no_grad():
        nets[0].encoder.weight.copy_(torch.eye(4))
        nets[1].encoder.weight.copy_(torch.eye(4)[[1, 2, 0, 3]])  # the classes change places
    r = Representation(osc.posteriors.Ensemble(nets, NOISE))
    pool, test = blobs(30, 0, 0.1), blobs(20, 1, 0.1)
    apart = semi_supervised(r, *pool, test, labels=(5,), repeats=3, neighbours=(2,))
    together = semi_supervised(r, *pool, test, labels=(5,), repeats=3, neighbours=(2,), pooled=True)
    assert apart.accuracy["representation"].eq(1).all()
    assert together.accuracy["representation"].max() < 0.9


def test_one_hot_codes_are_always_right_and_codes_without_content_are_at_chance() -> None:
    y, y_test = torch.arange(3).repeat(20), torch.arange(3).repeat(10)
    pool, test = nn.functional.one_hot(y).float(), nn.functional.one_hot(y_test).float()
    noise = torch.randn(90, 3, generator=torch.Generator().manual_seed(0))
    methods = {"one-hot": identity(3)}
    right = semi_supervised(methods, pool, y, (test, y_test), labels=(1, 2, 10), repeats=3)
    assert right.accuracy["one-hot"].eq(1).all()
    chance = semi_supervised(methods, noise[:60], y, (noise[60:], y_test), labels=(10,), repeats=5)
    assert float(chance.mean["one-hot"][0]) == pytest.approx(1 / 3, abs=0.15)


def test_all_methods_see_the_same_labelled_images_and_networks() -> None:
    options = {"labels": (1, 4), "repeats": 4, "samples": 3}
    record = semi_supervised({"a": drawn(), "b": drawn(), "c": identity()}, *POOL, TEST, **options)
    assert torch.equal(record.accuracy["a"], record.accuracy["b"])
    assert torch.equal(record.neighbours["a"], record.neighbours["b"])
    gap, error = record.difference("a", "b")
    assert not gap.any()
    assert not error.any()
    alone = semi_supervised({"c": identity()}, *POOL, TEST, **options)
    assert torch.equal(alone.accuracy["c"], record.accuracy["c"])
    other = semi_supervised({"c": identity()}, *POOL, TEST, **options, seed=1)
    assert not torch.equal(other.accuracy["c"], record.accuracy["c"])


def test_splits_are_stratified_nested_and_without_repetition() -> None:
    y = torch.tensor([0, 1, 2])[torch.randperm(90, generator=torch.Generator().manual_seed(0)) % 3]
    splits = _splits(y, 3, 10, 6, seed=0)
    assert splits.shape == (6, 3, 10)
    assert torch.equal(y[splits], torch.arange(3)[None, :, None].expand(6, 3, 10))
    assert all(len(split.unique()) == 30 for split in splits)
    assert not torch.equal(splits[0], splits[1])
    fewer = _splits(y, 3, 4, 6, seed=0)
    assert torch.equal(fewer, splits[:, :, :4])


def test_k_is_chosen_by_images_that_were_left_out() -> None:
    """Many codes of an image lie on top of one another: were they parted, k = 1 would always seem right."""
    rng = np.random.default_rng(0)
    number = 40
    kinds = np.arange(2).repeat(number)
    images = rng.normal(size=(2 * number, 2)) + 1.2 * kinds[:, None]
    copies = images + 1e-6 * rng.normal(size=(6, 2 * number, 2))
    alone, pooled = _best(images[None, None], 2, (1, 15)), _best(copies[None], 2, (1, 15))
    assert alone == pooled == 15
    assert _best(images[None, None, [0, 40]], 2, (2, 15)) == 2  # one image of each class: nothing to compare


def test_a_vae_has_as_many_codes_as_asked_for_and_a_plain_autoencoder_one() -> None:
    torch.manual_seed(0)
    x = POOL[0]
    net = VAE(nn.Linear(4, 4), nn.Linear(2, 4))
    r = Representation(osc.train(ELBO(net, NOISE), (x, x), epochs=1, progress=False))
    z = r.encode(x)
    codes = z.codes(400, torch.Generator().manual_seed(0))
    assert codes.shape == (400, len(x), 2)
    torch.testing.assert_close(codes.mean(0), z.mean, atol=0.3, rtol=0)
    torch.testing.assert_close(codes.var(0), z.variance, atol=0, rtol=0.4)
    torch.testing.assert_close(identity().encode(x).codes(3), x.expand(3, -1, -1))
    record = semi_supervised({"vae": r}, x, POOL[1], TEST, labels=(5,), repeats=2, samples=3)
    again = semi_supervised({"vae": r}, x, POOL[1], TEST, labels=(5,), repeats=2, samples=3)
    assert torch.equal(record.accuracy["vae"], again.accuracy["vae"])


def test_codes_of_one_draw_share_their_network() -> None:
    r, x = drawn(), POOL[0]
    z = r.encode(x, samples=4, generator=torch.Generator().manual_seed(0))
    parts = r.encode(x, samples=4, generator=torch.Generator().manual_seed(0), batch_size=7)
    torch.testing.assert_close(parts.samples, z.samples)
    torch.testing.assert_close(z.codes(6), z.samples[[0, 1, 2, 3, 0, 1]])


def test_means_and_errors_are_over_repeats_and_differences_are_paired() -> None:
    a, b = (torch.arange(10) < torch.tensor([[[first], [first + 2], [first + 4]]]) for first in (5, 4))
    record = SemiSupervisedRecord((5,), {"a": a, "b": b}, {"a": torch.ones(1, 3).long(), "b": torch.ones(1, 3).long()})
    torch.testing.assert_close(record.accuracy["a"], torch.tensor([[0.5, 0.7, 0.9]]).double())
    assert float(record.mean["a"]) == pytest.approx(0.7)
    assert float(record.standard_error["a"]) == pytest.approx(0.2 / 3**0.5)
    gap, error = record.difference("a", "b")
    assert (float(gap), float(error)) == (pytest.approx(0.1, abs=1e-6), pytest.approx(0, abs=1e-6))
    assert record.metrics() == {
        "accuracy/a/5": pytest.approx(0.7),
        "accuracy/b/5": pytest.approx(0.6),
        "standard_error/a/5": pytest.approx(0.2 / 3**0.5),
        "standard_error/b/5": pytest.approx(0.2 / 3**0.5),
    }
    with pytest.raises(ValueError, match="unknown method 'c'"):
        record.difference("a", "c")


def test_one_repeat_has_no_standard_error() -> None:
    record = module_function(identity(), *POOL, TEST, labels=(2,), repeats=1)
    assert record.standard_error["representation"].isnan().all()


def test_classes_need_not_be_numbered_from_zero() -> None:
    options = {"labels": (2, 6), "repeats": 2}
    plain = semi_supervised(identity(), *POOL, TEST, **options)
    odd = semi_supervised(identity(), POOL[0], 10 * POOL[1] - 7, (TEST[0], 10 * TEST[1] - 7), **options)
    assert torch.equal(plain.accuracy["representation"], odd.accuracy["representation"])


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"methods": {}}, ValueError, ("no method",)),
        ({"methods": {"q": osc.posteriors.Point(nn.Linear(4, 4), NOISE)}}, TypeError, ("'q'", "Point", "Represent")),
        ({"labels": (2, 31)}, ValueError, ("class 0 has 30 images", "31")),
        ({"labels": ()}, ValueError, ("labels", "none")),
        ({"labels": (0, 2)}, ValueError, ("labels", "0, 2")),
        ({"neighbours": ()}, ValueError, ("neighbours",)),
        ({"neighbours": (4, 7)}, ValueError, ("no 4 neighbours among 3",)),
        ({"repeats": 0}, ValueError, ("repeats", "0")),
        ({"samples": 0}, ValueError, ("samples", "0")),
        ({"y": POOL[1][:-1]}, ValueError, ("the pool has 90 images and 89 classes",)),
        ({"test": (TEST[0][:5], TEST[1])}, ValueError, ("the test set has 5 images and 60 classes",)),
        ({"test": (TEST[0][:40], TEST[1][:40])}, ValueError, ("class 2 is missing from the test set",)),
        ({"test": (TEST[0], TEST[1] + 1)}, ValueError, ("class 0 is missing from the test set",)),
        ({"x": POOL[0][:60], "y": POOL[1][:60]}, ValueError, ("class 2 is missing from the pool",)),
        ({"y": 0 * POOL[1]}, ValueError, ("only class 0",)),
    ],
)
def test_what_does_not_fit_is_refused(change: dict, error: type[Exception], words: tuple[str, ...]) -> None:
    arguments = {"methods": identity(), "x": POOL[0], "y": POOL[1], "test": TEST, "labels": (2,), **change}
    with pytest.raises(error, match=says(*words)):
        semi_supervised(**arguments)
