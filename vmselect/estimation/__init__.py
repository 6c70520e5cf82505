"""Estimates of the time of a whole training from a profile, with an interval. Imports no deep-learning framework."""

from vmselect.estimation import equations as equations
from vmselect.estimation.methods import METHODS as METHODS
from vmselect.estimation.methods import estimate as estimate
from vmselect.estimation.methods import fit_runtime as fit_runtime
from vmselect.estimation.programs import FitEstimate as FitEstimate
from vmselect.estimation.programs import FitsEstimate as FitsEstimate
from vmselect.estimation.programs import estimate_fits as estimate_fits
from vmselect.estimation.runtime import ClosedForm as ClosedForm
from vmselect.estimation.runtime import RuntimeEstimate as RuntimeEstimate
from vmselect.estimation.runtime import RuntimeModel as RuntimeModel
from vmselect.estimation.workload import Workload as Workload
