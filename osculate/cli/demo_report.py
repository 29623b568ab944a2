"""The reports of the demos, for readers new to Laplace's method, and their numbers in words."""

from collections.abc import Mapping
from math import hypot, isfinite
from typing import Any

from osculate.cli.demo_autoencoders import OURS, AutoencoderResults
from osculate.cli.demo_fits import Classification, recipe_for
from osculate.cli.page import Tables
from osculate.cli.side_by_side import changes_of, in_table
from osculate.cli.tables import Score, columns

#: Files in the folder of a demo, and what they hold.
FILES = {
    "metrics.json": "the numbers",
    "config.yaml": "the settings, which --config reads",
    "model.safetensors": "the network",
    "posterior.safetensors": "the posterior, which osculate predict and osculate evaluate use with --posterior",
}


def classifier_page(first: Classification, tables: Tables, seed: str) -> dict[str, Any]:
    """The content of the report of a classifier and a curve.

    Args:
        first: The results of the first seed.
        tables: Scores of the classification and of the regression, by caption.
        seed: The first seed in words, if there are several.
    """
    (caption, rows), (curve_caption, curve) = tables.items()
    found, of_seed = first.comparisons, f" ({seed})" if seed else ""
    changes = {f"{name} − MAP": in_table(changes_of(each)) for name, each in found.items()}
    return {
        "title": "Does a neural network know what it does not know?",
        "template": "classifier",
        "images": recipe_for(first.dataset.name).words,
        "fit_seconds": first.fit_seconds,
        "held_out": len(first.dataset.validation[0]),
        "tables": {caption: rows, f"Differences on the same test images{of_seed}": changes},
        "findings": [
            finding(rows),
            " ".join(f"{name}: {each.finding}" for name, each in found.items()),
            claims(first, of_seed),
        ],
        "which": seed,
        "curve": {curve_caption: curve},
    }


def finding(rows: Mapping[str, Mapping[str, Score]]) -> str:
    """The table in words: a phrase for each score, better or worse.

    >>> finding({"MAP": {"nll": Score(0.3)}, "Laplace": {"nll": Score(0.4)}})
    'From MAP to Laplace, NLL goes from 0.300 to 0.400 (worse).'
    """
    before, after = rows["MAP"], rows["Laplace"]
    parts = []
    for name, heading in columns(rows).items():
        a, b = before[name].mean, after[name].mean
        better = (b > a) == heading.endswith("↑")
        chance = hypot(before[name].error or 0.0, after[name].error or 0.0)
        verdict = "unchanged" if f"{a:.3f}" == f"{b:.3f}" else "better" if better else "worse"
        verdict = "within the error" if verdict != "unchanged" and abs(b - a) <= chance else verdict
        parts.append(f"{heading.rstrip(' ↑↓')} goes from {a:.3f} to {b:.3f} ({verdict})")
    return f"From MAP to Laplace, {', '.join(parts)}."


def claims(first: Classification, seed: str = "") -> str:
    """Mean confidence and accuracy of each method."""
    parts = []
    for name, record in first.records.items():
        claimed, kept = float(record.probs.amax(-1).mean()), record.metrics()["accuracy"]
        verdict = "overconfident" if claimed > kept + 0.01 else "underconfident"
        verdict = verdict if abs(claimed - kept) > 0.01 else "well calibrated"
        parts.append(
            f"{name} has a mean confidence of {100 * claimed:.1f} % and {100 * kept:.1f} % accuracy: {verdict}"
        )
    return (
        f"On the test images{seed}, {'; '.join(parts)}. The posterior needs no held-out images to be calibrated; "
        "tuning on them may still improve it. The table shows what either does for out-of-distribution detection."
    )


#: Standard errors of the difference beyond which one method is clearly better than another.
CLEAR = 2.0


def autoencoder_page(first: AutoencoderResults, tables: Tables, seed: str) -> dict[str, Any]:
    """The content of the report of the autoencoders; arguments as in :func:`classifier_page`."""
    return {
        "title": "Does an autoencoder know what it does not know?",
        "template": "autoencoders",
        "size": len(first.dataset.train[0]),
        "held_out": len(first.dataset.validation[0]),
        "temperature": float(getattr(first.q, "temperature", 1.0)),
        "errors": "over seeds" if seed else "that of the choice of test images, or of labelled ones",
        "count": score_card(tables),
        "plain": reconstruction_error_alone(tables),
        "tables": tables,
        "verdicts": verdicts,
        "which": seed,
    }


def verdicts(rows: Mapping[str, Mapping[str, Score]]) -> list[str]:
    """The best method of each column with a direction, and the significance of its lead.

    >>> verdicts({"AE": {"nll": Score(0.3, 0.01)}, "VAE": {"nll": Score(0.2, 0.01)}})
    ['NLL: VAE is clearly best (0.200 ± 0.010; AE 0.300 ± 0.010).']
    """
    found = []
    for name, heading in columns(rows).items():
        order = _ranked(rows, name, heading)
        if order is None:
            continue
        (best, top), *others = order
        words = heading.rstrip(" ↑↓")
        if not others:
            found.append(f"{words}: only {best} has this score ({top}).")
            continue
        second, score = others[0]
        level = [other for other, score in others if not _clear(top, score)]
        if top.error is None:
            found.append(f"{words}: {best} has the best number ({top}; {second} {score}), without a standard error.")
        elif level:
            names = level[0] if len(level) == 1 else f"{', '.join(level[:-1])} and {level[-1]}"
            found.append(f"{words}: {best} has the best number ({top}), but is not clearly better than {names}.")
        else:
            found.append(f"{words}: {best} is clearly best ({top}; {second} {score}).")
    return found


def score_card(tables: Tables) -> str:
    """The numbers of columns in which online Laplace is clearly best, level with the best, and clearly behind."""
    clear = level = behind = 0
    for rows in tables.values():
        for name, heading in columns(rows).items():
            order = _ranked(rows, name, heading) or []
            if len(order) < 2 or OURS not in dict(order) or order[0][1].error is None:
                continue
            (best, top), (_, second) = order[:2]
            if best == OURS and _clear(top, second):
                clear += 1
            elif best != OURS and _clear(top, dict(order)[OURS]):
                behind += 1
            else:
                level += 1
    return (
        f"Of {clear + level + behind} columns in which methods can be compared, {OURS} is clearly best in {clear}, "
        f"level with the best in {level}, and clearly behind it in {behind}."
    )


def reconstruction_error_alone(tables: Tables) -> str:
    """The detection of out-of-distribution images by reconstruction error alone, without any uncertainty."""
    plain = [rows["AE"]["auroc_nll"].mean for rows in tables.values() if "auroc_nll" in rows.get("AE", {})]
    if not plain:
        return ""
    return (
        "Out-of-distribution images are also detected by their reconstruction error: −log p(x) of the plain "
        f"autoencoder has an AUROC of {min(plain):.3f} on the hardest of these sets."
    )


def _ranked(rows: Mapping[str, Mapping[str, Score]], name: str, heading: str) -> list[tuple[str, Score]] | None:
    """Methods with this score, best first; None if the score has no better direction."""
    if heading[-1] not in "↑↓":
        return None
    having = [(method, row[name]) for method, row in rows.items() if name in row and isfinite(row[name].mean)]
    return sorted(having, key=lambda pair: pair[1].mean, reverse=heading.endswith("↑")) or None


def _clear(best: Score, other: Score) -> bool:
    return abs(best.mean - other.mean) > CLEAR * hypot(best.error or 0.0, other.error or 0.0)
