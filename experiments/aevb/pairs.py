"""Plain and variational autoencoders side by side, as the report on AEVB trained them and on equal terms."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from experiments import Resumable, Runner, seeded
from experiments.aevb.cells import (
    FREY,
    FREY_CODERS,
    Coders,
    Fit,
    Task,
    held_out,
    likelihood_of,
    network,
)
from osculate.autoencoders import ELBO, VAE, Autoencoder
from osculate.likelihoods import Gaussian, Likelihood
from osculate.methods import MAP
from osculate.methods._base import Method
from osculate.networks import mlp_coders
from osculate.training import train

#: Networks: those of the document, and those on equal terms, of which one has the likelihood of the VAE too.
AE_DOCUMENT, VAE_DOCUMENT = "AE, the document's", "VAE, the document's"
AE_EQUAL, AE_LIKELIHOOD, VAE_EQUAL = "AE, equal terms", "AE, likelihood of the VAE", "VAE, equal terms"
NETWORKS = (AE_DOCUMENT, VAE_DOCUMENT, AE_EQUAL, AE_LIKELIHOOD, VAE_EQUAL)
#: A squared error without a half is the negative log likelihood of this noise, up to a constant.
SQUARED = Gaussian(0.5**0.5)
#: Codes that are averaged, where the mean code is not decoded by itself.
AVERAGED = 20
#: Training images that are kept from training to tell when to stop, where the data set has none held out.
KEPT = 150


@dataclass(frozen=True)
class Settings(Resumable):
    """What is trained.

    Args:
        tasks: images.
        coders: of each, but for the size of the code.
        fit: on equal terms; epochs by held-out images.
        document: as the document trains, which is without watching.
        latents: sizes of the code.
        networks: of :data:`NETWORKS`.
    """

    tasks: tuple[Task, ...] = (Task(), FREY)
    coders: tuple[Coders, ...] = (Coders(), FREY_CODERS)
    fit: Fit = Fit(images=1_000_000)
    document: Fit = Fit(images=1_000_000, lr=0.01, optimizer="adagrad")
    latents: tuple[int, ...] = (2, 10, 20)
    networks: tuple[str, ...] = NETWORKS


PRESETS = {
    "small": Settings(),
    "paper": Settings(
        (Task(train_size=50_000, validation_size=10_000), FREY),
        fit=Fit(images=50_000_000),
        document=Fit(images=50_000_000, lr=0.01, optimizer="adagrad"),
    ),
}


@dataclass(frozen=True)
class Pair:
    """One network of the comparison.

    Args:
        task: images.
        coders: encoder and decoder.
        name: of :data:`NETWORKS`.
        settings: of all.
        seed: of weights, batches and held-out images.
    """

    task: Task
    coders: Coders
    name: str
    settings: Settings
    seed: int

    @property
    def by_document(self) -> bool:
        """Whether it is trained as the document does."""
        return self.name in (AE_DOCUMENT, VAE_DOCUMENT)

    def trained(self, runner: Runner) -> tuple[Autoencoder, Likelihood, dict[str, Any]]:
        """The network, p(x|f), and the test images' squared errors."""
        # What tells when to stop must not be what is reported: without held-out frames some are kept from training.
        by_itself = self.by_document or self.task.validation_size
        task = self.task if by_itself else replace(self.task, validation_size=KEPT)
        dataset = task.load(self.seed)
        net, likelihood = self._made(dataset.input_shape)
        fit = self.settings.document if self.by_document else self.settings.fit
        x, other = dataset.train[0], held_out(dataset)
        # The document adds the whole of its prior to the sum over a batch: a precision N/M times as large.
        prior = len(x) / fit.batch if self.by_document else 1.0
        method: Method = ELBO(net, likelihood, prior) if isinstance(net, VAE) else MAP(net, likelihood, prior)
        epochs = max(1, round(fit.images / len(x)))

        def run() -> Mapping[str, Any]:
            history = train(
                method,
                (x, x),
                validation=(other, other),
                epochs=epochs,
                batch_size=fit.batch,
                lr=fit.lr,
                optimizer=fit.optimizer,
                schedule="constant",
                patience=None if self.by_document else max(5, epochs // 10),
                seed=self.seed,
                device="cpu",
                progress=False,
            ).history
            with seeded(self.seed):
                return {"epochs": len(history), **_errors(net.eval(), likelihood, dataset.test[0])}

        about = [asdict(task), asdict(self.coders), asdict(fit), prior]
        words = self.name.replace(",", "").replace("'", "").split()
        values = runner.network("pair", (self.task.data, self.coders.latent, *words, self.seed), about, net, run)
        net.latent = self.coders.latent
        return net.eval(), likelihood, values

    def _made(self, shape: Sequence[int]) -> tuple[Autoencoder, Likelihood]:
        coders = replace(self.coders, initialisation="small") if self.by_document else self.coders
        if self.name in (VAE_DOCUMENT, VAE_EQUAL):
            return network(self.task, coders, shape, self.seed), likelihood_of(self.task.data)
        if self.name == AE_LIKELIHOOD:
            halves = network(self.task, coders, shape, self.seed, codes=1)
            return Autoencoder(halves.encoder, halves.decoder), likelihood_of(self.task.data)
        with seeded(self.seed):
            encoder, decoder = mlp_coders(
                shape,
                coders.latent,
                coders.hidden,
                decoder_hidden=coders.decoder,
                activation=coders.activation,
                initialisation=coders.initialisation,
            )
        ends = [nn.Tanh()] if self.by_document else []
        return Autoencoder(nn.Sequential(encoder, *ends), nn.Sequential(decoder, nn.Sigmoid())), SQUARED


@torch.no_grad()
def _errors(net: Autoencoder, likelihood: Likelihood, x: Tensor) -> dict[str, float]:
    """Squared error of an image, summed over pixels: of the mean code, and of the average over drawn ones."""
    found = {"mean code": _squared(likelihood, net(x), x)}
    if isinstance(net, VAE):
        h = net.code(x)
        images = [likelihood.distribution(net(decode=z)).mean for z in net.posterior.codes(h, samples=AVERAGED)]
        found["drawn codes"] = float((torch.stack(images).mean(0) - x).square().flatten(1).sum(1).mean())
    return found


def _squared(likelihood: Likelihood, f: Tensor, x: Tensor) -> float:
    return float((likelihood.distribution(f).mean - x).square().flatten(1).sum(1).mean())
