"""Training a variational autoencoder beside a loop by hand, and its importance weighted bound beside one by images."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits

import osculate as osc
from benchmarks.result import Result, row
from benchmarks.timing import Effort, flops, ratio
from osculate.autoencoders import ELBO, VAE, bound
from osculate.networks import mlp_coders
from osculate.randomness import seeded

PIXELS, LATENT, HIDDEN = (1, 28, 28), 10, 500
LIKELIHOOD = osc.likelihoods.Bernoulli(grey=True)
#: Images and batch of an epoch of training, and the learning rate.
IMAGES, BATCH, RATE = 5_000, 100, 1e-3
#: Largest cost of training in loops by hand: 0.9 of their images a second.
SLOWEST = 1 / 0.9
#: Images of a bound, its draws, and those that the loop has in a pass.
FEW, DRAWS, CHUNK = 8, 5_000, 100
#: Largest cost of a bound in loops by images.
SHARE = 1 / 20


def _network() -> tuple[VAE, Tensor]:
    with seeded(0):
        return VAE(*mlp_coders(PIXELS, LATENT, (HIDDEN,), codes=2)), torch.rand(IMAGES, *PIXELS)


def _by_hand() -> Callable[[], None]:
    """An epoch, as one writes it without a library: the same objective, the prior of the weights as weight decay."""
    net, x = _network()
    optimizer = torch.optim.Adam(net.parameters(), RATE, weight_decay=1 / IMAGES)

    def epoch() -> None:
        for rows in torch.randperm(len(x)).split(BATCH):
            images = x[rows]
            mean, log_variance = net.encoder(images).chunk(2, 1)
            z = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
            reconstruction = binary_cross_entropy_with_logits(net.decoder(z), images, reduction="sum")
            divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
            optimizer.zero_grad()
            ((reconstruction + divergence) / len(rows)).backward()
            optimizer.step()

    return epoch


@row("vae-training")
def training(effort: Effort) -> Result:
    """An epoch of ``osc.train``, with what it checks and counts."""
    net, x = _network()
    method = ELBO(net, LIKELIHOOD)

    def epoch() -> None:
        osc.train(method, (x, x), epochs=1, batch_size=BATCH, lr=RATE, schedule="constant", progress=False)

    spread = ratio(_by_hand(), epoch, replace(effort, repeats=2 * effort.repeats))
    note = f"{1 / spread.median:.2f} of the images a second"
    return Result("train a VAE, 784-500-10-500-784", "epoch of a loop by hand, Adam", spread, SLOWEST, note=note)


def _by_images(net: VAE, x: Tensor) -> Callable[[], list[float]]:
    """The custom, that of pythae too: image by image, whose copies are encoded for each pass of draws."""

    @torch.no_grad()
    def loop() -> list[float]:
        found = []
        for image in x:
            weights = []
            for _ in range(DRAWS // CHUNK):
                copies = torch.cat(CHUNK * [image.unsqueeze(0)])
                mean, log_variance = net.encoder(copies).chunk(2, 1)
                z = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
                log_q = -0.5 * (log_variance + (z - mean).square() / log_variance.exp()).sum(1)
                pixels = binary_cross_entropy(net.decoder(z).sigmoid(), copies, reduction="none").flatten(1).sum(1)
                weights.append(-pixels - 0.5 * z.square().sum(1) - log_q)
            found.append(float(torch.cat(weights).logsumexp(0)) - torch.tensor(DRAWS).log().item())
        return found

    return loop


@row("vae-iwae")
def weighted(effort: Effort) -> Result:
    """The bound of a few images: the cost of both is in proportion to their number."""
    net, x = _network()
    with torch.no_grad():
        for layer in (m for m in net.modules() if isinstance(m, nn.Linear)):
            layer.weight.mul_(0.5)  # codes that are less certain, so that draws differ
    few = x[:FEW]
    loop = _by_images(net, few)

    def batched() -> object:
        return bound(net, few, "iwae", DRAWS, likelihood=LIKELIHOOD)

    spread = ratio(loop, batched, effort)
    note = f"{1 / spread.median:.1f} times as fast, {spread.unit_seconds / FEW:.2f} s an image by the loop"
    limit = flops(loop, batched)
    return Result("IWAE of 5000 draws", "loop over images, 100 draws a pass", spread, SHARE, note=note, limit=limit)
