"""Diagnosis of what limits the speed of a recorded training. Quantities that were not measured are not diagnosed."""

from vmselect.diagnosis.causes import Diagnosis, diagnose, find_causes

__all__ = ["Diagnosis", "diagnose", "find_causes"]
