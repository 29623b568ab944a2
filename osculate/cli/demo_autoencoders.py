"""The demo of autoencoders: four ways to train one, measured on the same tasks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from osculate.autoencoders import LatentMap, Representation
from osculate.cli import autoencoder_figures as figures, autoencoder_tasks as tasks
from osculate.cli.after_training import finished, held_out_noise, represented
from osculate.cli.checkpoint import Card
from osculate.cli.methods import MethodOptions, taking
from osculate.cli.options import DataOptions
from osculate.cli.train import TrainOptions, new_network
from osculate.data import Dataset, out_of_distribution
from osculate.posteriors import Posterior
from osculate.progress import Clock
from osculate.tasks import ImputationRecord, OODRecord, SemiSupervisedRecord, ood, semi_supervised
from osculate.training import Settings, train

#: The method whose posterior is saved, and whose imputations are drawn.
OURS = "online Laplace"
#: The compared methods, with their names in ``osculate train``.
METHODS = {"AE": "map", "VAE": "vae", "MC dropout": "mc_dropout", OURS: "online_laplace"}
# Chosen once by log p(x) of the held-out images, one seed, the test part unseen: rate 3e-3 with 100 epochs or 5e-3 with
# 150, for all alike; noise while training 0.1 or 0.2; temperature 0.05, 0.02 or 0.005; dropout of 0.2, 0.1 or 0.05.
SETTINGS = Settings(epochs=150, lr=5e-3, batch_size=64)
NOISE = 0.1
DROPOUT = 0.05
HIDDEN = [128, 64]
VALIDATION = 200
LABELS = (1, 2, 5, 10, 20, 50)
#: Number of networks sampled by each task; None for its default.
SAMPLES: int | None = None
#: Scores by method, by caption.
Tables = Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True)
class AutoencoderResults:
    """The results of one seed, by method.

    Args:
        dataset: The data, with labels.
        card: The network of online Laplace, for the run folder.
        methods: Trained autoencoders.
        reconstructed: Scores of the test images' reconstructions.
        shifted: Scores in and out of distribution.
        imputed: Imputation of the upper half of test images.
        few: Accuracy with few labels.
    """

    dataset: Dataset
    card: Card
    methods: Mapping[str, Representation]
    reconstructed: Mapping[str, Mapping[str, float]]
    shifted: Mapping[str, OODRecord]
    imputed: Mapping[str, ImputationRecord]
    few: SemiSupervisedRecord

    @property
    def q(self) -> Posterior:
        """The posterior to save."""
        return self.methods[OURS].posterior

    @property
    def tables(self) -> Tables:
        """All numbers."""
        images = f"{len(self.dataset.test[0]):,} test images"
        sets = next(iter(self.shifted.values())).outside
        return {
            f"reconstruction of {images}": self.reconstructed,
            **{
                f"AUROC, {images} against {name}": {m: tasks.ood_scores(r, name) for m, r in self.shifted.items()}
                for name in sets
            },
            "the upper half hidden and filled in, judged by a classifier": {
                method: tasks.imputation_scores(record) for method, record in self.imputed.items()
            },
            f"accuracy by nearest codes, by labelled images of each class ({tasks.REPEATS} choices of them)": {
                method: tasks.few_label_scores(self.few, method) for method in self.methods
            },
        }


def compare(
    *, train_size: int | None, structure: str | None, seed: int, device: str, progress: bool, clock: Clock
) -> AutoencoderResults:
    """Train and measure all methods once."""
    options = DataOptions("digits", None, train_size, VALIDATION, split_seed=seed)
    dataset = options.load()
    methods: dict[str, Representation] = {}
    for name, method in METHODS.items():
        with clock.step(name, f"training an autoencoder: {name}"):
            own: dict[str, Any] = {"structure": structure} if method in taking("structure") else {}
            methods[name], card = _trained(dataset, options, MethodOptions(method, **own), seed, device, progress)
    x = dataset.test[0]
    setting = tasks.Setting(Path(), SAMPLES, seed)
    with clock.step("reconstruct", f"reconstructing {len(x):,} test images and out-of-distribution ones"):
        reconstructed = {name: figures.reconstruction_scores(r, x) for name, r in methods.items()}
        partners = out_of_distribution(dataset, seed=seed)
        shifted = {
            name: ood(r, x, partners, samples=SAMPLES or 100, generator=setting.generator)
            for name, r in methods.items()
        }
    with clock.step("impute", "filling in hidden halves, with a classifier to judge them"):
        judge = tasks.trained_classifier(dataset, progress, seed)
        imputed = {name: tasks.impute(r, dataset, judge, setting) for name, r in methods.items()}
    with clock.step("few labels", "classifying test images by their codes, with few labels"):
        few = semi_supervised(
            methods,
            *dataset.train,
            dataset.test,
            labels=LABELS,
            repeats=tasks.REPEATS,
            samples=SAMPLES or 20,
            seed=seed,
        )
    return AutoencoderResults(dataset, card, methods, reconstructed, shifted, imputed, few)


def _trained(
    labelled: Dataset, data: DataOptions, method: MethodOptions, seed: int, device: str, progress: bool
) -> tuple[Representation, Card]:
    """One method's autoencoder, with the noise of its error on held-out images."""
    network = {"hidden": HIDDEN} | ({"dropout": DROPOUT} if method.kind.needs_dropout else {})
    options = TrainOptions("mlp_autoencoder", network, noise=NOISE)
    model, card = new_network(labelled, data, options, seed, method)
    dataset = card.of(labelled)
    done = train(
        method.make(lambda number: model, card, 1.0),
        dataset.train,
        SETTINGS.changed(seed=seed),
        device=device,
        progress=progress,
    )
    card = replace(card, noise=held_out_noise(model.eval(), dataset, card.noise))
    return represented(finished(done.posterior, card, method, dataset, False).to("cpu"), dataset.train[0]), card


def draw(found: AutoencoderResults, folder: Path) -> dict[str, Path]:
    """The six figures."""
    from osculate import plots

    assert found.dataset.classes is not None
    x, y = found.dataset.test
    maps = {name: LatentMap.of(r, x[: figures.POINTS]) for name, r in found.methods.items()}
    latent = plots.latent_map(maps, y[: figures.POINTS].numpy(), found.dataset.classes)
    chosen = figures.picked(x, y, 10)[[0, 2, 4, 7]] if len(x) > 7 else torch.arange(len(x))
    parts = {"test": x[chosen]}  # beside them out-of-distribution images
    for name, images in out_of_distribution(found.dataset).items():
        parts[name.partition(" ")[0]] = images[chosen[:3]]
    some, names = torch.cat(list(parts.values())), [name for name, images in parts.items() for _ in images]
    compared = plots.reconstructions(
        some.numpy(), {name: figures.pictures(r, some) for name, r in found.methods.items()}, names
    )
    generator = torch.Generator().manual_seed(0)
    rows = {"test images": x[figures.picked(x, y, 10)].numpy()}
    rows |= {name: r.generate(10, generator).cpu().numpy() for name, r in found.methods.items()}
    panels = {  # not every method has every score
        f"{name}: {words}": {m: (r, name, score) for m, r in found.shifted.items() if score in r.inside}
        for name in found.shifted[OURS].outside
        for score, words in figures.SCORES.items()
    }
    return {
        "latent_map": plots.save(latent, folder / "latent_map.png"),
        "reconstructions": plots.save(compared, folder / "reconstructions.png"),
        "roc": figures.draw_roc(panels, folder / "roc.png"),
        "imputations": figures.draw_imputations(found.imputed[OURS], found.dataset, folder / "imputations.png"),
        "generated": plots.save(
            plots.image_grid(rows, "Real images, and new ones that each method generates"), folder / "generated.png"
        ),
        "accuracy_against_labels": figures.draw_few_labels(
            found.few, len(found.dataset.classes), folder / "accuracy_against_labels.png"
        ),
    }
