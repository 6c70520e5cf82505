"""Diagnosis: what limits the speed of a recorded training. What was not measured is not diagnosed."""

from vmselect.diagnosis.causes import diagnose, find_causes
from vmselect.diagnosis.evidence import Diagnosis

__all__ = ["Diagnosis", "diagnose", "find_causes"]
