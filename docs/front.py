"""The figure of the front page, which `python docs/front.py` draws again."""

from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import osculate as osc
from osculate import plots
from osculate.plots import style

PLACE = Path(__file__).parent / "assets" / "front.png"
ALONE, WITH = "the network alone", "after osc.laplace(model, likelihood, data)"


def trained(
    model: nn.Module, likelihood: osc.likelihoods.Likelihood, x: Tensor, y: Tensor
) -> nn.Module:
    """A model after a usual training."""
    settings = {"epochs": 1500, "lr": 2e-2, "batch_size": len(x), "progress": False}
    osc.train(osc.methods.MAP(model, likelihood, 0.1), (x, y), **settings)
    return model.eval()


def curve(alone, after, random: torch.Generator) -> None:
    """A regression on data with a gap: predictions without error bars, and with them."""
    x = 1.8 * torch.rand(100, 1, generator=random) + torch.tensor([[-3.2], [0.6]]).repeat(50, 1)
    y = torch.sin(2 * x) + 0.1 * torch.randn(x.shape, generator=random)
    model, likelihood = osc.networks.MLP(1, (50,), 1), osc.likelihoods.Gaussian(0.1)
    q = osc.laplace(trained(model, likelihood, x, y), likelihood, (x, y), structure="full")
    grid = torch.linspace(-5, 4, 200)[:, None]
    p = osc.predict(q, grid)
    bands = plots.Band(*(values.squeeze(1).numpy() for values in (grid, p.mean, p.stddev)))
    alone.plot(grid, model(grid).detach(), color=style.BLUE, linewidth=1.8)
    alone.plot(x, y, ".", color=style.INK, markersize=4)
    plots.band(after, bands, style.BLUE, (x.squeeze(1).numpy(), y.squeeze(1).numpy()))
    for ax, name in ((alone, ALONE), (after, WITH)):
        style.label(ax, name, "x")
        ax.set(xlim=(-5, 4), ylim=(-3.5, 3.5))
    style.label(alone, y="y")


def plane(alone, after, random: torch.Generator) -> None:
    """The probability of the second of two classes, by the network and on average."""
    angle = torch.pi * torch.rand(60, 2, generator=random)
    circles = torch.stack([angle.cos(), angle.sin()], -1)
    x = torch.cat([circles[:, 0], torch.tensor([1.0, 0.4]) - circles[:, 1]])
    x = x + 0.12 * torch.randn(x.shape, generator=random)
    y = torch.arange(2).repeat_interleave(60)
    model, likelihood = osc.networks.MLP(2, (40,), 2), osc.likelihoods.Categorical()
    q = osc.laplace(trained(model, likelihood, x, y), likelihood, (x, y), structure="full")
    first, second = torch.linspace(-4, 5, 91), torch.linspace(-3, 3.5, 66)
    grid = torch.cartesian_prod(first, second)
    for ax, probs in ((alone, model(grid).softmax(-1)), (after, osc.predict(q, grid).probs)):
        plots.class_map(ax, (first, second), probs[:, 1].reshape(91, 66).T.detach(), x, y)
        style.label(ax, None, "input 1")
    style.label(alone, y="input 2")


def figure() -> Figure:
    """Both, as they come out of a fit."""
    torch.manual_seed(0)
    random = torch.Generator().manual_seed(0)
    drawn, axes = plots.panels(2, 2, 4.4, 2.5)
    curve(*axes[0], random)
    plane(*axes[1], random)
    return drawn


if __name__ == "__main__":
    print(plots.save(figure(), PLACE))
