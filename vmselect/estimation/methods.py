"""Every method by name. A new one is a file with a function of this shape, and a line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from vmselect.estimation.malta import fit_epochs, fit_iterations
from vmselect.estimation.robust import fit_robust
from vmselect.estimation.runtime import RuntimeModel
from vmselect.estimation.workload import Workload
from vmselect.records import Profile


class Method(Protocol):
    """From repetitions of one setup to the runtime of ``workload``, in which all that is known is filled in."""

    def __call__(self, profiles: Sequence[Profile], workload: Workload, *, confidence: float) -> RuntimeModel:
        """The model; an :class:`~vmselect.errors.EstimateError` where the profiles cannot tell."""
        ...


METHODS: Mapping[str, Method] = {
    "robust": fit_robust,
    "malta-epoch": fit_epochs,
    "malta-iteration": partial(fit_iterations, validates=True, mean=False),
    "malta-iteration:second": partial(fit_iterations, validates=True, mean=False),
    "malta-iteration:mean-2-10": partial(fit_iterations, validates=True, mean=True),
    "malta-iteration-no-validation": partial(fit_iterations, validates=False, mean=False),
    "malta-iteration-no-validation:second": partial(fit_iterations, validates=False, mean=False),
    "malta-iteration-no-validation:mean-2-10": partial(fit_iterations, validates=False, mean=True),
}
"""The methods of :func:`vmselect.estimate`. Without a suffix, the dissertation's iteration methods use the second
iteration."""
