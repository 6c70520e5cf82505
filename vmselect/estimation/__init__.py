"""Estimates the time of a whole training from a profile, with an interval. Imports no framework."""

from vmselect.estimation import equations
from vmselect.estimation.methods import METHODS, estimate, fit_runtime
from vmselect.estimation.programs import FitEstimate, FitsEstimate, estimate_fits
from vmselect.estimation.runtime import ClosedForm, RuntimeEstimate, RuntimeModel
from vmselect.estimation.workload import Workload

__all__ = [
    "METHODS",
    "ClosedForm",
    "FitEstimate",
    "FitsEstimate",
    "RuntimeEstimate",
    "RuntimeModel",
    "Workload",
    "equations",
    "estimate",
    "estimate_fits",
    "fit_runtime",
]
