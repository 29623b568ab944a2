"""One row through a deployed posterior: the last layer of a ResNet-18, and all layers of the MLP."""

import torch

import osculate as osc
from benchmarks.networks import CLASSES, posterior, setting
from benchmarks.result import Result, row
from benchmarks.timing import SHORTEST, Effort, Spread, ratio, seconds

#: Images of the fit, and bounds: forward passes of the network, and milliseconds of a row of the MLP.
IMAGES, FORWARD, MILLISECONDS = 20, 1.2, 0.3


@row("deploy-last-layer-resnet18")
def last_layer(effort: Effort) -> Result:
    """Probabilities and variances of one image of 32 × 32 pixels by a pre-activation ResNet-18 with random weights."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(IMAGES, 3, 32, 32, generator=generator)
    y = torch.randint(CLASSES, (IMAGES,), generator=generator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = osc.networks.PreActResNet().eval()
    q = osc.laplace(model, osc.likelihoods.Categorical(), (x, y), subset="last_layer", prior=1.0, refine=False)
    module, image = osc.deploy(q), x[:1]
    with torch.no_grad():
        spread = ratio(lambda: model(image), lambda: module(image), effort)
    return Result("deploy last layer kron ResNet-18, one row", "forward pass, same row", spread, FORWARD)


@row("deploy-kron-mlp")
def layers(effort: Effort) -> Result:
    """Probabilities and variances of one row by the MLP, in milliseconds."""
    x, module = setting("mlp").x[:1], osc.deploy(posterior("mlp", "kron"))
    with torch.no_grad():
        module(x)
        times = max(1, round(SHORTEST / seconds(lambda: module(x))))
        spread = Spread.of([1e3 * seconds(lambda: module(x), times) for _ in range(effort.repeats)])
    return Result("deploy kron mlp, one row", "millisecond", spread, MILLISECONDS)
