"""Diagnosis: what limits the speed of a recorded training. What was not measured is not diagnosed."""

from vmselect.diagnosis.causes import Diagnosis, diagnose, find_causes

__all__ = ["Diagnosis", "diagnose", "find_causes"]
