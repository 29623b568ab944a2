"""laplace-torch, with its default backend and with BackPACK; everything works without it."""

import copy
import warnings
from functools import lru_cache
from importlib import metadata, util
from typing import Any

import torch
from torch import Tensor

from benchmarks.networks import BATCH, DATA, Setting, setting

#: Packages whose versions the record holds.
PACKAGES = ("torch", "numpy", "laplace-torch", "curvlinops-for-pytorch", "backpack-for-pytorch")
DEFAULT, BACKPACK = "laplace-torch", "laplace-torch + BackPACK"
MISSING = "laplace-torch is not installed"


def versions() -> dict[str, str | None]:
    """Installed versions of ourselves and the peers."""
    found = {}
    for name in ("osculate", *PACKAGES):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


@lru_cache
def available() -> bool:
    """Whether laplace-torch can be imported."""
    if util.find_spec("laplace") is None:
        return False
    try:
        import laplace  # noqa: F401
    except ImportError as error:
        warnings.warn(f"laplace-torch is installed but cannot be imported: {error}", stacklevel=2)
        return False
    return True


def backend(name: str) -> Any:
    """The curvature backend: CurvlinopsGGN (the default) or BackPackGGN."""
    from laplace.curvature import BackPackGGN, CurvlinopsGGN

    return CurvlinopsGGN if name == DEFAULT else BackPackGGN


def fitted(data: Setting, structure: str, peer: str, count: int, batch: int) -> Any:
    """Their posterior over all weights of a classifier with unit prior precision."""
    from laplace import Laplace

    model = copy.deepcopy(data.model)  # BackPACK leaves hooks on the modules it extends
    la = Laplace(model, "classification", "all", structure, backend=backend(peer))
    la.fit(data.loader(count, batch))
    return la


def curvature_pass(data: Setting, structure: str, peer: str, count: int, batch: int) -> Any:
    """A fit without the eigendecomposition that laplace-torch does at its end, as a function of nothing."""
    interface = backend(peer)(copy.deepcopy(data.model), "classification")
    parts = list(zip(data.x[:count].split(batch), data.y[:count].split(batch), strict=True))

    def work() -> None:
        total = None
        for x, y in parts:
            _, found = getattr(interface, structure)(x, y, N=count)
            total = found if total is None else total + found

    return work


@lru_cache
def posterior(name: str, structure: str, peer: str = DEFAULT) -> Any:
    """Their posterior, ready for predictions and tuning.

    The diagonal of the default backend would take minutes: it is taken from BackPACK's, which is the same.
    """
    data = setting(name)
    if structure != "diag" or peer == BACKPACK:
        return fitted(data, structure, peer, DATA, BATCH)
    la, quick = fitted(data, structure, peer, 10, 10), posterior(name, structure, BACKPACK)
    la.H, la.loss, la.n_data = quick.H, quick.loss, quick.n_data
    return la


def predict(la: Any, x: Tensor) -> Tensor:
    """Their linearised probit predictive."""
    return la(x, pred_type="glm", link_approx="probit")


def tune(la: Any, precision: Tensor) -> None:
    """Their default: 100 steps of Adam on the log marginal likelihood."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        la.optimize_prior_precision(pred_type="glm", method="marglik", init_prior_prec=precision, n_steps=100)


def stationarity(la: Any, squares: Tensor) -> float:
    """max |δ‖θ‖² − γ| / γ at their prior precisions, from the gradient of their log marginal likelihood.

    Args:
        la: The posterior.
        squares: ‖θ_g‖² of each group of parameters.
    """
    logs = la.prior_precision.detach().clone().double().log().requires_grad_()
    (gradient,) = torch.autograd.grad(la.log_marginal_likelihood(prior_precision=logs.exp().float()), logs)
    spent = logs.detach().exp() * squares
    gamma = 2 * gradient.double() + spent
    return float(((spent - gamma).abs() / gamma.abs()).max())
