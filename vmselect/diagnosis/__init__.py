"""Diagnosis of what limits the speed of a recorded training. Quantities that were not measured are not diagnosed."""

from vmselect.diagnosis.causes import Cause, Diagnosis, diagnose, find_causes
from vmselect.diagnosis.checks import Disturbance, Examination, check_profile

__all__ = ["Cause", "Diagnosis", "Disturbance", "Examination", "check_profile", "diagnose", "find_causes"]
