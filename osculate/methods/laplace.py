"""Post-hoc Laplace: one pass over the data at the mode of a trained network."""

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from osculate import curvature as curvatures, structures
from osculate.batches import (
    BATCH_SIZE,
    Data,
    as_batches,
    fingerprint,
    number_of_batches,
    number_of_rows,
    numbering,
    shuffles_unseeded,
)
from osculate.curvature.columns import GGN, Fisher, Kind
from osculate.curvature.engine import Observation, are_costly
from osculate.curvature.kept import kept_plan
from osculate.distributed import Group, group
from osculate.evidence import calibrated, maximise_evidence
from osculate.evidence.variational import require_memory
from osculate.inputs import Inputs, floating_type, moved
from osculate.memory import DEFAULT_BUDGET, sparing
from osculate.methods._base import require_network, unwrapped
from osculate.methods.subnetwork import Subnetwork, Units, path_variance
from osculate.networks import Output
from osculate.parameters import (
    Network,
    adapters,
    is_pattern,
    point_estimated,
    require_deterministic_layers,
    select,
    trainable,
    undisturbed,
)
from osculate.posteriors import Fit, Gaussian, earlier
from osculate.posteriors.fit import first_rows, fitted, observe, require_room
from osculate.posteriors.resumable import Checkpoint, SharedSums, Sums, dependencies, opened
from osculate.predictive import tune
from osculate.priors import Isotropic, Layerwise, Prior
from osculate.progress import track
from osculate.registry import choose, lookup, made
from osculate.streams import RowStream, lazily
from osculate.structures import Diag, Kron, Structure

#: Inputs or outputs of a layer up to which a default gives it Kronecker factors.
LARGEST = 4096
Choice = TypeVar("Choice")
#: Subsets by name.
SUBSETS = ("all", "last_layer", "lora")


def laplace(
    model: nn.Module,
    likelihood: Any,
    data: Data,
    *,
    structure: str | Structure = "auto",
    curvature: str | Kind = "auto",
    prior: Any = "evidence",
    subset: str | Iterable[str] | Subnetwork = "all",
    output: int | str | None = None,
    refine: bool | str = "auto",
    validation: Data | None = None,
    memory: str | int | None = None,
    checkpoint: str | os.PathLike | None = None,
    every: str | int = "5min",
    distributed: str | bool = "auto",
    progress: bool = False,
) -> Gaussian:
    r"""The Laplace approximation of the posterior over a trained network's parameters.

    .. math:: q(\theta) = N(\theta^*, \Lambda^{-1}), \qquad
              \Lambda = \sum_n J_n^\top \Lambda_n J_n + \operatorname{diag}(\delta)

    with J_n the Jacobian of the outputs, Λ_n = −∂² log p(y_n|f_n)/∂f² the output Hessian, and δ the prior precision.
    [mackay1992; immer2021]

    Args:
        model: The trained module, in evaluation mode if it has dropout or batch normalisation. It is copied and left
            exactly as it is.
        likelihood: p(y|f), from ``osc.likelihoods``.
        data: The training data of the network: a ``DataLoader``, any iterable of ``(x, y)`` batches, or a pair of
            tensors or NumPy arrays ``(X, Y)``. Inputs may be tuples (``model(*x)``) or mappings (``model(**x)``). Data
            that do not fit into memory are a stream (:func:`osculate.data.stream`) or a pair of memory-mapped arrays.
        structure: A name from ``osc.structures.REGISTRY``, or an object of ``osc.structures``. "auto" (the default) is
            "kron", with diagonals for layers of more than 4,096 inputs or outputs, which is said.
        curvature: "ggn" (exact), "fisher" (one sampled label for each datum: about two training epochs' cost),
            "empirical_fisher", "hessian", or an object such as ``osc.curvature.Fisher(samples=5)``. "auto" (the
            default) is "ggn", or "fisher" where a backward pass for each output would take long, which is said
            (:func:`osculate.plan`).
        prior: "evidence" (one precision for each parameter tensor, and the noise scale of a Gaussian likelihood, by
            the evidence), a number (a fixed precision for all), an object of ``osc.priors``, used as it is, or an
            earlier posterior of the same parameters and structure, whose data then count too.
        subset: "all" (every parameter that requires gradients), "last_layer", "lora" (the trainable parameters of
            adapters, by PEFT's names), a list of parameter and module names or patterns such as ``"*lora_A*"`` (which
            includes frozen parameters), or ``osc.Subnetwork(fraction)`` of single parameters. Frozen parameters outside
            it are not copied: the posterior refers to those of the model, and refuses to work after they were changed.
        output: The part of what the model returns that is f, where it returns several: an index into a tuple, or the
            name of an entry or attribute. The posterior is then that of :class:`osculate.networks.Output`; methods of
            ``osc.train`` take that module in place of the model.
        refine: True for the refined posterior (:func:`osculate.refine`), which is calibrated without held-out data, by
            the rule of :func:`osculate.evidence.calibrated`; False for Laplace's own; "auto" (the default) refines
            where that rule was studied: classes and Gaussian noise with exact curvature ("ggn"), no autoencoder, and
            no stream of more than 256 MiB, which the refinement would hold in memory.
        validation: Held-out data on which the posterior is tuned in the same call (:func:`osculate.tune`).
        memory: Bytes that the fit may take, or a text such as "2GB"; batches are split to fit. About a third
            is for the temporaries of a pass and the rest for the posterior, which is not refused if it is larger; the
            refinement holds the data and some twenty vectors of the size of the parameters besides. By default the
            temporaries may take 256 MiB (up to 1 GiB for large networks) or a quarter of the free memory, on a GPU
            8 GiB or half of it, whichever is smaller.
        checkpoint: A file for the sums over the data, and for the refinement, from which an interrupted fit goes on
            where it was: the same call again ends with the same bits. It is removed at the end. The data must come in
            the same order; they are passed over, for their digest, and not summed again. Only the choice of the prior
            by the evidence, and of the subnetwork, is repeated. Each of several processes has a file of its own, whose
            name ends in "0-of-2" and the like.
        every: Interval at which it is written: a time such as "30s" or "5min", or a number of batches.
        distributed: "auto": where a process group of ``torch.distributed`` is initialised, each of its processes makes
            this call with its own share of the data, which may be empty, and gets the posterior of all data; False:
            this process fits its data alone.
        progress: Show a progress bar, in the first process.

    Returns:
        A posterior for ``osc.predict``, ``osc.log_evidence``, ``osc.tune`` and ``osc.save``; if it is refined, that of
        a classifier has the temperature 0.1.

    Raises:
        ValueError: dropout or batch normalisation is in training mode, no parameter is trainable, the data are empty
            or not finite, the targets do not fit, a name is unknown, a pattern matches nothing, the model returns no
            such output or several without a choice, or the network is too large. The checkpoint is of another network,
            of other data or settings, damaged, or in use. The processes have the same data, or different networks or
            settings.
        ConnectionError: another process has failed, or does not take part.
        TypeError: a likelihood, structure, curvature or prior is of another type, the loader yields no pairs, or the
            targets are of the wrong type.

    Cost: one forward pass, and one backward pass without weight gradients for each output (one in all for "fisher");
    and a few passes over at most 16 of the first data, once for a network. Where it refines, that of
    :func:`osculate.refine` in addition, about five times as much.

    >>> import osculate as osc
    >>> X, Y = torch.randn(30, 2), torch.randint(3, (30,))
    >>> q = osc.laplace(nn.Linear(2, 3), osc.likelihoods.Categorical(), (X, Y))
    >>> osc.predict(q, X[:4]).probs.shape
    torch.Size([4, 3])
    """
    kind, matrix = kind_named(curvature), structure_named(structure)
    by_evidence, prior = isinstance(prior, str), prior_named(prior)
    if not isinstance(refine, bool):
        choose("refine", refine, ("auto",))
    require_network(model, likelihood)
    model = unwrapped(model)
    if isinstance(subset, str) and is_pattern(subset):
        subset = [subset]
    data = lazily(data, BATCH_SIZE, floating_type(model))
    if output is not None:
        if not isinstance(subset, str | Subnetwork):  # in the names of the model
            subset = [f"network.{name}" for name in select(model, subset)]
        model = Output(model, output)
    require_deterministic_layers(model)
    if matrix.passes > 1 and isinstance(data, Iterator):
        raise ValueError(
            f"structure={matrix.name!r} reads the data {matrix.passes} times, and {type(data).__name__} can be read "
            "only once: pass a list of batches, a DataLoader or a pair (X, Y)."
        )
    if checkpoint is not None:
        matrix.require_sums()
        _warn_of_order(data)
    processes = group(distributed)
    progress = progress and processes.rank == 0
    with opened(checkpoint, every, processes) as file, sparing(memory):
        with processes.together() as begin:
            batches = _tracked(data, progress, f"{matrix.name} curvature", not processes.alone)
            own = next(batches, None)
            begin.said = _rows_to_share(own, processes), expected_rows(data, own), number_of_rows(data)
        rows, sizes, counts = zip(*begin.heard, strict=True)
        batches_of_fit: Iterator[tuple[Inputs, Tensor]] = chain([] if own is None else [own], batches)
        with processes.together() as settings:
            first, size = _first(rows), sum(sizes)
            network = network_of(model, subset, first[0])
            start = observe(network, likelihood, kind, first, memory)
            if structure == "auto":
                matrix = said(affordable_structure(start))
            if curvature == "auto" and not matrix.by_products:
                kind = said(affordable_kind(start, size))
                start = replace(start, kind=kind)
            if isinstance(subset, Subnetwork):
                processes.require_alone("a Subnetwork is chosen", "name the parameters of its layers")
                require_room(start, Diag(), memory)
                start = _restricted(start, subset, matrix, data, batches_of_fit, progress)
                batches_of_fit = _tracked(data, progress, f"{matrix.name} curvature of the subnetwork")
            require_room(start, matrix, memory)
            matrix.require_few(start, size)
            settings.said = {} if processes.alone else _dependencies(start, matrix, with_positions=False)
        processes.require_same(settings.heard)
        titles = (
            f"{matrix.name} curvature, pass {number} of {matrix.passes}" for number in range(2, matrix.passes + 1)
        )
        again = chain([batches_of_fit], (_tracked(data, progress, title, not processes.alone) for title in titles))
        sums = None if checkpoint is None else _sums(start, matrix, data, file, processes)
        numbers = numbering(data, counts, processes.rank) if start.kind.random else None
        fit = fitted(start, matrix, again, sums, processes, numbers)
        file.write()
        kept = None if isinstance(data, Iterator) else data
        prior.require_structure(fit.curvature)
        q = Gaussian(fit, likelihood, prior, first_data=first_rows(*first), data=kept).noted(
            memory=memory, processes=processes
        )
        studied = (likelihood.quadratic or (likelihood.saturates and prior.independent)) and isinstance(kind, GGN)
        refines = refine is True or (refine and studied and not getattr(model, "mean_is_network", False))
        if by_evidence or refines:
            fit.curvature.share(processes)
        if by_evidence:
            q = maximise_evidence(q)
        if refines:
            q = _refined(q, by_evidence, refine is True, progress, file)
        if validation is None:
            return q
        validation = lazily(validation, BATCH_SIZE, q.mean.dtype)
        processes.require_same(processes.gather({"validation data": str(fingerprint(validation))}))
        return tune(q, validation, progress=progress)


def kind_named(curvature: str | Kind) -> Kind:
    """The kind of curvature of a name; "auto" is the exact one where that is affordable."""
    return GGN() if curvature == "auto" else made("curvature", curvature, curvatures.REGISTRY, Kind)


def structure_named(structure: str | Structure) -> Structure:
    """The structure of a name; "auto" has Kronecker factors where they are affordable."""
    return Kron() if structure == "auto" else made("structure", structure, structures.REGISTRY, Structure)


def prior_named(prior: Any) -> Prior:
    """The prior of a name, a precision, an earlier posterior or an object of ``osc.priors``.

    Raises:
        TypeError: it is none of these.
        ValueError: the name is unknown, or the precision is not positive.
    """
    if prior is None or isinstance(prior, bool):
        raise TypeError(f"prior must be 'evidence', a positive number or an object of osc.priors, got {prior!r}.")
    prior = earlier.as_prior(prior)
    if isinstance(prior, str):
        return lookup("prior", prior, {"evidence": Layerwise()})
    return prior if isinstance(prior, Prior) else Isotropic(prior)


def expected_rows(data: Data, first: tuple[Inputs, Tensor] | None) -> int:
    """The number of data before they are read: that of their batches times the rows of the first one."""
    return 0 if first is None else len(first[1]) * (number_of_batches(data) or 1)


def affordable_structure(start: Observation) -> tuple[Structure, str]:
    """The structure of a default, and a sentence where some layers are too large for Kronecker factors."""
    matrix = Kron(largest=LARGEST)
    wide = [spec for spec in start.plan.specs if spec.kind in ("outer", "lookup") and not matrix.has_factors(spec)]
    if not wide:
        return Kron(), ""
    return matrix, (
        f"{', '.join(spec.names[0] for spec in wide)}: the Kronecker factors of more than {LARGEST:,} inputs or "
        "outputs take long to decompose, and the diagonal stands for them. structure='kron' insists on factors."
    )


def affordable_kind(start: Observation, size: int) -> tuple[Kind, str]:
    """The kind of curvature of a default, and a sentence where the exact one would take long."""
    outputs, device = start.plan.outputs, start.network.device
    if not are_costly(GGN().expected(outputs), size, start.plan.for_structure(by_factors=True), device):
        return GGN(), ""
    return Fisher(generator=torch.Generator().manual_seed(0)), (
        f"curvature='fisher', with one sampled label a datum, in place of {outputs:,} backward passes for each of "
        f"{size:,} data. curvature='ggn' insists on these."
    )


def said(choice: tuple[Choice, str]) -> Choice:
    """The choice of a default, after a warning that says it where there is something to say."""
    chosen, sentence = choice
    if sentence:
        warnings.warn(sentence, stacklevel=3)
    return chosen


def _warn_of_order(data: Data) -> None:
    """Warn of a loader whose order a resumed fit does not know."""
    if shuffles_unseeded(data):
        warnings.warn(
            "the loader shuffles by torch's own random numbers, so that a fit that is interrupted may find its data in "
            "another order and cannot go on: fit with shuffle=False, or give the loader a generator with a seed.",
            stacklevel=3,
        )


def _sums(start: Observation, structure: Structure, data: Data, file: Checkpoint, processes: Group) -> Sums:
    """The part of a checkpoint for the sums of the fit."""
    about = {f"data {name}": words for name, words in fingerprint(data).items()} | _dependencies(start, structure)
    if processes.alone and not file.has_rows:
        return Sums(file, "fit", about)
    return SharedSums(file, "fit", about, processes, partial(as_batches, data, may_be_empty=True))


def _dependencies(start: Observation, structure: Structure, with_positions: bool = True) -> dict[str, str]:
    """Texts on which the sums depend besides the data, see :func:`~osculate.posteriors.resumable.dependencies`."""
    kind = replace(start.kind, generator=None) if start.kind.random else start.kind  # type: ignore[type-var]
    settings = {"structure": structure, "curvature": kind, "likelihood": start.likelihood}
    return dependencies(start.network, start.plan, with_positions, **settings)


def _refined(q: Gaussian, noise: bool, required: bool, progress: bool, file: Checkpoint) -> Gaussian:
    """The refined posterior, or the same one with a warning where the data cannot be read again or held."""
    problem = (
        "the data can be read only once, and refinement reads them again. Pass a list of batches, a DataLoader or a "
        "pair (X, Y)."
    )
    if q.data is not None:
        try:
            if isinstance(q.data, RowStream) and not required:
                assert q.first_data is not None
                require_memory(q, *q.first_data, DEFAULT_BUDGET)
            return calibrated(q, noise, progress, None if file.path is None else file)
        except ValueError as error:
            if required:
                raise
            problem = str(error)
    warnings.warn(f"the posterior is not refined: {problem}", stacklevel=3)
    return q


def laplace_in_training(
    model: nn.Module, likelihood: Any, data: Data, temperature: float = 1.0, **choice: Any
) -> Gaussian:
    """The tempered Laplace approximation (:func:`laplace`) of a network in training, taken in evaluation mode."""
    with undisturbed(model):
        return laplace(model.eval(), likelihood, data, refine=False, **choice).replace(temperature=temperature)


def _tracked(data: Data, progress: bool, title: str, may_be_empty: bool = False) -> Iterator[tuple[Inputs, Tensor]]:
    yield from track(as_batches(data, may_be_empty=may_be_empty), title, number_of_batches(data), progress)


def _rows_to_share(own: tuple[Inputs, Tensor] | None, processes: Group) -> tuple[Inputs, Tensor] | None:
    """The first batch, or what other processes need of it."""
    if own is None or processes.alone:
        return own
    return first_rows(moved(own[0], torch.device("cpu")), own[1].cpu())


def _first(rows: Sequence[tuple[Inputs, Tensor] | None]) -> tuple[Inputs, Tensor]:
    """The rows of the first process that has any, the same in all.

    Raises:
        ValueError: no process has data.
    """
    if (found := next((each for each in rows if each is not None), None)) is None:
        raise ValueError("the data hold no batch in any process. Pass at least one (x, y) batch to one of them.")
    return found


def _restricted(
    start: Observation,
    subset: Subnetwork,
    structure: Structure,
    data: Data,
    batches: Iterator[tuple[Inputs, Tensor]],
    progress: bool,
) -> Observation:
    """The plan of the chosen subnetwork, after a pass over the data if the choice needs one."""
    if not structure.entrywise:
        raise ValueError(
            f"structure={structure.name!r} cannot keep single parameters of a layer. For a Subnetwork use 'full', "
            "'block', 'dual', 'diag' or 'approx_diag', or name whole layers as the subset."
        )
    if isinstance(data, Iterator):
        raise ValueError(f"a Subnetwork reads the data twice, and {type(data).__name__} can be read only once.")
    other = replace(start, kind=Units())

    def diagonals() -> tuple[Tensor, Tensor]:
        again = _tracked(data, progress, "choice of the subnetwork")
        return _diagonal(fitted(start, Diag(), [batches])), _diagonal(fitted(other, Diag(), [again]))

    path = partial(path_variance, start.network, start.likelihood, data, progress=progress)
    return replace(start, plan=start.plan.restricted(subset.mask(start.network, diagonals, path)))


def _diagonal(fit: Fit) -> Tensor:
    values = torch.zeros(fit.curvature.space.size)
    for block in fit.curvature.blocks:
        values[block.positions.cpu()] = block.tensors()["values"].cpu().to(values)
    return values


def network_of(model: nn.Module, subset: str | Iterable[str] | Subnetwork, x: Inputs) -> Network:
    """The network with the parameters of a subset, all of them where single ones are chosen later."""
    if not isinstance(subset, str | Subnetwork):
        chosen = select(model, subset)
        if refused := sorted(point_estimated(model) & set(chosen)):
            raise ValueError(
                f"{type(model).__name__} has no posterior over {refused[0]!r}, about which the data hold no "
                "evidence: leave it and its like out, for example subset=['decoder']."
            )
        return Network(model, chosen)
    if isinstance(subset, str):
        hint = ", or a list of parameter and module names" if subset not in SUBSETS else ""
        choose(f"subset{hint}", subset, SUBSETS)
    if subset == "lora":
        return Network(model, adapters(model))
    left_out = point_estimated(model)
    names = tuple(name for name in trainable(model) if name not in left_out)
    network = Network(model, names)
    if subset != "last_layer":
        return network
    last = kept_plan(network, moved(x, network.device)).last_layer
    del network  # with its copy of the parameters
    if not last:
        raise ValueError(
            "subset='last_layer': the last operation with parameters is not a linear or convolution layer. "
            f"Name the parameters instead, for example subset=[{names[-1]!r}]."
        )
    return Network(model, last)
