"""Agreement of ``methods.HMC`` with the no-U-turn sampler of numpyro, on posteriors that both compute alike.

    python benchmarks/hmc_reference.py reference    # in one with numpyro, too; writes the JSON file of the tests
    python benchmarks/hmc_reference.py compare      # in one with osculate: the same posteriors by HMC, minutes each

The toy is y = x³ + ε, ε ~ N(0, 9), with 20 inputs uniform in [-4, 4], both standardised; the network is 1-H-1 with
tanh, its weights in the order of ``nn.Sequential(nn.Linear(1, H), nn.Tanh(), nn.Linear(H, 1))``, with prior N(0, 1).
The case "quick" assumes a noise of three times what the data have, and takes seconds.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).resolve().parent.parent / "tests" / "methods" / "hmc_reference.json"
#: Hidden units, the factor on the noise, and draws of each of four chains of the reference.
CASES = {"quick": (10, 3.0, 5000), "tanh10": (10, 1.0, 2000), "tanh40": (40, 1.0, 2000)}
#: Settings of HMC for the comparison.
SETTINGS: dict[str, dict[str, int]] = {
    "quick": {"chains": 16, "warmup": 100, "draws": 60},
    "tanh10": {"chains": 16, "warmup": 200, "draws": 200, "max_depth": 8},
    "tanh40": {"chains": 16, "warmup": 200, "draws": 200, "max_depth": 9},
}
GRID = np.linspace(-2.5, 2.5, 11)


def toy() -> tuple[np.ndarray, np.ndarray, float]:
    """Inputs, targets and the standard deviation of the noise, standardised."""
    from osculate.data.toys import CUBIC_NOISE, cubic_points

    x, y = cubic_points(np.random.default_rng(0))
    return (x - x.mean()) / x.std(), (y - y.mean()) / y.std(), CUBIC_NOISE / y.std()


def reference(case: str) -> dict[str, Any]:
    """What numpyro finds for a case."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from jax.scipy.stats import norm
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)
    hidden, factor, draws = CASES[case]
    x, y, noise = toy()
    noise *= factor
    size = 3 * hidden + 1

    def function(theta: Any, inputs: Any) -> Any:
        weight, bias, out, last = jnp.split(theta, (hidden, 2 * hidden, 3 * hidden))
        return jnp.tanh(inputs[:, None] * weight + bias) @ out + last

    def potential(theta: Any) -> Any:
        return -norm.logpdf(y, function(theta, x), noise).sum() - norm.logpdf(theta).sum()

    sampler = MCMC(
        NUTS(potential_fn=potential), num_warmup=1000, num_samples=draws, num_chains=4, chain_method="sequential"
    )
    start = jax.random.normal(jax.random.PRNGKey(1), (4, size))
    began = time.perf_counter()
    sampler.run(jax.random.PRNGKey(0), init_params=start, extra_fields=("diverging", "num_steps"))
    fields = sampler.get_extra_fields()
    f = np.asarray(jax.vmap(jax.vmap(lambda t: function(t, GRID)))(sampler.get_samples(group_by_chain=True)))
    theta = np.linspace(-1, 1, size)
    return {
        "hidden": hidden,
        "noise": noise,
        "x": x.tolist(),
        "y": y.tolist(),
        "theta": theta.tolist(),
        "potential": float(potential(theta)),
        "grid": GRID.tolist(),
        "mean": f.mean((0, 1)).tolist(),
        "sd": f.std((0, 1)).tolist(),
        "ess": effective_sample_size(f).tolist(),
        "ess_squares": effective_sample_size((f - f.mean((0, 1))) ** 2).tolist(),
        "r_hat": float(np.max(split_gelman_rubin(f))),
        "draws": 4 * draws,
        "divergences": int(fields["diverging"].sum()),
        "leapfrog_steps": round(float(fields["num_steps"].mean())),
        "seconds": round(time.perf_counter() - began, 1),
        "versions": {"numpyro": numpyro.__version__, "jax": jax.__version__},
    }


def compare(case: str, expected: dict[str, Any], seed: int = 0, **changes: int) -> dict[str, Any]:
    """z-scores of the means and standard deviations of HMC against the reference, over the grid."""
    import torch
    from torch import nn

    import osculate as osc
    from osculate.posteriors import chains as diagnostics

    settings = {**SETTINGS[case], **changes}
    draws = settings.pop("draws")
    x, y, grid = (torch.tensor(expected[name], dtype=torch.double)[:, None] for name in ("x", "y", "grid"))
    hidden = expected["hidden"]
    net = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, 1)).double()
    method = osc.methods.HMC(net, osc.likelihoods.Gaussian(expected["noise"]), prior=1.0, **settings)
    epochs = settings["warmup"] + draws
    began = time.perf_counter()
    done = osc.train(method, (x, y), epochs=epochs, seed=seed, progress=False)
    seconds = time.perf_counter() - began
    q = done.posterior
    f = torch.stack([q.network(grid, q.network.space.unflatten(t)) for t in q.thetas.flatten(0, 1)]).squeeze(-1)
    mean, sd = f.mean(0).numpy(), f.std(0).numpy()
    squares = (f - f.mean(0)).square().unflatten(0, q.thetas.shape[:2])
    ess = q.effective_sample_size(grid).squeeze(1).numpy()
    ess_squares = diagnostics.effective_sample_size(squares).numpy()
    m, s, n, n2 = (np.array(expected[name]) for name in ("mean", "sd", "ess", "ess_squares"))
    spread = (
        squares.flatten(0, 1).std(0).numpy() / sd
    )  # the error of a standard deviation is that of its square, halved
    rows = done.history[settings["warmup"] :]
    return {
        "z_mean": np.round((mean - m) / np.sqrt(sd**2 / ess + s**2 / n), 2).tolist(),
        "z_sd": np.round((sd - s) / (0.5 * spread * np.sqrt(1 / ess_squares + 1 / n2)), 2).tolist(),
        "ess": ess.round().tolist(),
        "r_hat": float(q.r_hat(grid).max()),
        "draws": len(f),
        "seconds": round(seconds, 1),
        "leapfrog_steps": sum(row["leapfrog_steps"] for row in rows) / len(rows),
        "divergences": sum(row["divergences"] for row in rows),
        "step_size": rows[-1]["step_size"],
    }


def main(what: str, *cases: str) -> None:
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    for case in cases or tuple(CASES):
        if what == "reference":
            known[case] = reference(case)
            FILE.write_text(json.dumps(known, indent=1) + "\n")
            numbers = {name: known[case][name] for name in ("r_hat", "divergences", "leapfrog_steps", "seconds")}
            print(case, numbers, "ESS at least", round(min(known[case]["ess"])), flush=True)
        else:
            print(json.dumps({"case": case, **compare(case, known[case])}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
