"""EXPLAIN: why a training is as slow as it is, from what its record holds. Says nothing where nothing is known."""

from vmselect.diagnosis.causes import diagnose, find_causes
from vmselect.diagnosis.evidence import Diagnosis

__all__ = ["Diagnosis", "diagnose", "find_causes"]
