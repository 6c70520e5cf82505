"""Quality of a classifier from its confusion matrix, as metrics of a record: accuracy, precision, recall and F1.

The metrics of a record are numbers by name, so the counts of the matrix are metrics too: ``confusion/cat/dog`` is the
number of cats that were classified as dogs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from vmselect._checks import check_mapping, check_name, check_number, show
from vmselect.errors import ArgumentError

COUNT, WEIGHTED = "confusion/", "weighted"
MAX_CLASSES = 30
"""Largest number of classes: a record has at most 1,000 metrics, and a matrix of 30 classes has 900 counts."""


def classification_metrics(confusion: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Metrics for ``metrics=`` of a probe or of ``Profile.from_times``, from a confusion matrix.

    ``confusion`` maps each true class to the numbers of its examples by the class that the model gave them. A metric
    that is not defined, such as the precision of a class that was never given, is left out. Metrics with the suffix
    ``_weighted`` are means over the classes, weighted by their numbers of examples; they are left out if that of a
    class with examples is.

    >>> metrics = classification_metrics({"ill": {"ill": 84, "well": 16}, "well": {"ill": 60, "well": 172}})
    >>> [round(metrics[name], 2) for name in ("accuracy", "precision_ill", "recall_ill")]
    [0.77, 0.58, 0.84]
    >>> round(metrics["recall_weighted"] - metrics["accuracy"], 9), metrics["confusion/ill/well"]
    (0.0, 16.0)
    """
    rows = {check_name("a class", name): check_mapping(f"confusion[{name!r}]", row)
            for name, row in check_mapping("confusion", confusion).items()}  # fmt: skip
    names = list(dict.fromkeys([*rows, *(str(answer) for row in rows.values() for answer in row)]))
    if not 2 <= len(names) <= MAX_CLASSES:
        raise ArgumentError(f"confusion has {len(names)} classes. Pass 2 to {MAX_CLASSES}.")
    if wrong := [name for name in names if "/" in name or name == WEIGHTED]:
        raise ArgumentError(
            f"{show(wrong[0])} cannot be the name of a class, as names of metrics contain it. Rename this class."
        )
    counts = {
        (true, answer): check_number(f"confusion[{true!r}][{answer!r}]", rows.get(true, {}).get(answer, 0), least=0)
        for true in names
        for answer in names
    }
    total = math.fsum(counts.values())
    if not total:
        raise ArgumentError("confusion has no examples. Pass the numbers of examples by true and by given class.")
    metrics = {"accuracy": math.fsum(counts[name, name] for name in names) / total}
    weighted: dict[str, list[tuple[float, float | None]]] = {}
    for name in names:
        right = counts[name, name]
        true, answered = (math.fsum(counts[pair] for pair in counts if pair[side] == name) for side in (0, 1))
        parts = {"precision": (right, answered), "recall": (right, true), "f1": (2 * right, true + answered)}
        for part, (count, of) in parts.items():
            if of:
                metrics[f"{part}_{name}"] = count / of
            if true:
                weighted.setdefault(part, []).append((true, count / of if of else None))
    for part, values in weighted.items():
        defined = [(weight, value) for weight, value in values if value is not None]
        if len(defined) == len(values):
            metrics[f"{part}_{WEIGHTED}"] = math.fsum(weight * value for weight, value in defined) / total
    return metrics | {f"{COUNT}{true}/{answer}": count for (true, answer), count in counts.items()}
