# %% [markdown]
# # A head from twenty X-rays: reconstruction with error bars
#
# A scanner sends parallel X-rays through a slice of a head at twenty angles. The
# measurements are noisy, and too few for a good reconstruction. This page reconstructs the
# slice with an untrained network, and uses the linearised network to estimate the error of
# each pixel.
#
# **What you learn.** How to reconstruct an image from any linear measurement, and how to see
# which parts of it the data leave undetermined.

# %%
import torch

import osculate as osc
from osculate import plots
from osculate.inverse import DeepImagePrior, RayTransform, filtered_back_projection, reconstruct
from osculate.networks import SkipUNet

torch.manual_seed(0)
image = osc.data.shepp_logan(24)
rays = RayTransform((24, 24), angles=20)
clean = rays(image)
sigma = 0.1 * float(clean.abs().mean())
data = clean + sigma * torch.randn(clean.shape)
print(rays, "noise", round(sigma, 3))

# %% [markdown]
# ## The reconstruction and its error bars
#
# The network is smaller and trained for fewer steps than by default, so that this page takes
# seconds. The first row is filtered back-projection with one error bar for all pixels, its
# root mean squared error; the second row is the linearised network.

# %% A head, its reconstructions, their errors and their error bars
prior = DeepImagePrior(SkipUNet(width=12), steps=500, learning_rate=3e-3)
found = reconstruct(rays, data, sigma, prior=prior)
classical = filtered_back_projection(rays, data)
spread = torch.full_like(classical, float((classical - image).square().mean().sqrt()))
rows = {
    "back-projection": (classical, spread),
    "linearised network": (found.mean, found.stddev),
}
plots.error_maps(image, rows, "A head from twenty X-rays")

# %% [markdown]
# The error bars are widest along the skull, where a shift by a fraction of a pixel fits the
# data equally well. The errors are largest there, too. The numbers show how well they agree:

# %%
error, stddev = (found.mean - image).abs(), found.stddev
half, most = stddev.median(), stddev.quantile(0.9)
for name, chosen in {"half": stddev <= half, "tenth": stddev > most}.items():
    size = "smallest" if name == "half" else "largest"
    means = [round(float(values[chosen].mean()), 3) for values in (error, stddev)]
    print(f"the {name} of pixels with the {size} error bars: error {means[0]}, bar {means[1]}")
print("within 95 % intervals:", round(float((error < 1.96 * stddev).double().mean()), 2))

# %% [markdown]
# ## Other images that fit the data
#
# The posterior is over whole images. The data determine the features that all samples share;
# the features that vary between samples are undetermined.

# %% The reconstruction beside five other images that fit the data
draws = torch.cat([found.mean[None], found.posterior.sample((5,))])
names = ["reconstruction", *[f"draw {n}" for n in range(1, 6)]]
plots.image_grid(
    {"": draws[:, None]}, "Images that fit the data", limits=(1.0, 0.0), captions={"": names}
)

# %% [markdown]
# ## Findings and limitations
#
# Error bars reveal the artefacts of this reconstruction: they are large where it is wrong.
# They are those of a linear model around one fitted network. They do not include a bias that
# all of its plausible filters share. A network trained too briefly has such a bias, and a
# warning reports it.
