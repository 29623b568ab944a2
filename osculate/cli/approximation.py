"""The Laplace approximation of ``osculate fit``: its options, and the fit."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from osculate import curvature as curvatures, structures
from osculate.autoencoders import LaplacianAutoencoder
from osculate.cli.checkpoint import Card
from osculate.cli.options import naming
from osculate.data import Dataset
from osculate.distributed import group
from osculate.evidence import calibrated, maximise_evidence
from osculate.evidence.laplace import MODES
from osculate.methods.laplace import SUBSETS, laplace
from osculate.methods.subnetwork import Subnetwork
from osculate.posteriors import Gaussian
from osculate.posteriors.linearised import has_many_columns
from osculate.posteriors.resumable import Checkpoint
from osculate.predictive import tune
from osculate.priors import Grouped, Layerwise
from osculate.registry import lookup

#: The structures of posteriors that a file can hold.
STORABLE = tuple(name for name, make in structures.REGISTRY.items() if not make().unstorable)
#: Priors whose precisions the evidence chooses, and number of inputs on which normalisations are recorded.
PRIORS, EXAMPLES = ("evidence", "normalised"), 8


@naming(structures=STORABLE, curvatures=curvatures.REGISTRY, modes=MODES)
@dataclass(frozen=True)
class ApproximationOptions:
    """The approximation, and the choice of its prior.

    Args:
        structure: Structure of the posterior, {structures}; by default kron, for autoencoders approx_diag, for a share
            of single parameters full.
        curvature: Kind of curvature, {curvatures}; by default ggn, which is exact.
        subset: All, last_layer, lora, names or patterns of parameters and modules separated by commas, or a share such
            as 0.1 of the single parameters; by default all.
        prior: Prior precision (1 / variance), or evidence or normalised, which choose one for each parameter tensor
            or group of layers; by default evidence, for autoencoders 1.
        evidence: Parameters at which the evidence is evaluated, {modes}; by default the network's own.
        refine: Move the mean and average the curvature, so that no held-out data are needed for calibration; by
            default for classes and real values, but not with sampled curvature, --prior normalised or --evidence.
        tune: Choose temperature, prior precision, noise and mean on the validation part; by default if osculate train
            has kept one.
    """

    structure: str | None = None
    curvature: str = "ggn"
    subset: float | str = "all"
    prior: float | str | None = None
    evidence: str | None = None
    refine: bool | None = None
    tune: bool | None = None

    @property
    def share(self) -> float | None:
        """The share of single parameters that the posterior is over, or None."""
        try:
            return float(self.subset)
        except ValueError:
            return None

    def check(self) -> None:
        """Raise ValueError, before any data are read, for options that are unknown or incompatible."""
        if self.structure is not None:
            require_storable(self.structure)
        if isinstance(self.prior, str):
            lookup("prior", self.prior, dict.fromkeys(PRIORS))
        if self.evidence is not None:
            lookup("evidence", self.evidence, dict.fromkeys(MODES))
            if self.prior is not None and self.prior not in PRIORS:
                raise ValueError(
                    f"--evidence {self.evidence} chooses the prior, but --prior {self.prior} fixes it: leave one out."
                )
        if self.prior == "normalised" and self.share is None and self.subset != "all":
            raise ValueError(
                f"--prior normalised groups all parameters, but --subset {self.subset} leaves some out: leave one out."
            )

    def fit(
        self, model: nn.Module, card: Card, dataset: Dataset, progress: bool, file: Checkpoint | None = None
    ) -> Gaussian:
        """The posterior, with its prior by the evidence and refined, if the options say so.

        Args:
            model: The network.
            card: The card of the network.
            dataset: The data.
            progress: Show progress bars.
            file: Checkpoint of the fit, for structures whose sums it can hold.

        Raises:
            ValueError: it is to be tuned, and there is no validation part.

        Each of several processes fits its share of the data.
        """
        if self.tune and not len(dataset.validation[0]):
            raise ValueError(
                "--tune needs held-out data, and the validation part is empty: leave it out, or train again with "
                "--validation-size."
            )
        share = group("auto").share(len(dataset.train[1]))
        by_default = 1.0 if card.reconstructs and self.evidence is None else "evidence"
        chosen = by_default if self.prior is None else self.prior
        named_evidence = chosen == "normalised" or (isinstance(chosen, str) and self.evidence is not None)
        prior: Any = chosen
        if named_evidence:
            prior = _by_normalisation(model, dataset) if chosen == "normalised" else Layerwise()
        usual = "approx_diag" if card.reconstructs else "kron"
        named = self.subset if self.subset in SUBSETS else str(self.subset).split(",")
        structure = self.structure or (usual if self.share is None else "full")
        checkpoint = file if structures.REGISTRY[structure]().resumes else None
        q = laplace(
            model,
            card.likelihood,
            tuple(part[share] for part in dataset.train),
            structure=structure,
            checkpoint=checkpoint,
            curvature=self.curvature,
            prior=prior,
            subset=named if self.share is None else Subnetwork(self.share),
            refine=not named_evidence and ("auto" if self.refine is None else self.refine),
            progress=progress,
        )
        if not named_evidence:
            return q
        q = maximise_evidence(q, self.evidence or "network", progress=progress)
        return calibrated(q, False, progress, checkpoint) if self.refine else q

    def tuned(self, q: Gaussian, dataset: Dataset, card: Card, held_out: bool, progress: bool) -> Gaussian:
        """The posterior with prior precision and temperature by the validation part, if the options say so.

        Args:
            q: The posterior of the fit.
            dataset: The data.
            card: Card of the network.
            held_out: True if the network has not seen the validation part.
            progress: Show progress bars.
        """
        size = len(dataset.validation[0])
        if not (self.tune or (self.tune is None and size and held_out and not has_many_columns(q, size))):
            return q
        if not card.reconstructs:
            return tune(q, dataset.validation, progress=progress)
        tuned = LaplacianAutoencoder.tuned(q, dataset.validation[0], progress=progress).posterior
        assert isinstance(tuned, Gaussian)
        return tuned


def require_storable(structure: str) -> None:
    """Raise ValueError, before the fit, for a structure that is unknown or cannot be saved."""
    if why := lookup("structure", structure, structures.REGISTRY)().unstorable:
        raise ValueError(why)


def _by_normalisation(model: nn.Module, dataset: Dataset) -> Grouped:
    """The prior with a group for the layers before each normalisation.

    Raises:
        ValueError: the network has no normalisation.
    """
    prior = Grouped.normalised(model, dataset.train[0][:EXAMPLES].to(next(model.parameters()).device))
    if len(prior.groups) < 2:
        raise ValueError("--prior normalised: no normalisation was found in the network: use --prior evidence.")
    return prior
