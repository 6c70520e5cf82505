"""RECORD: the profile, its file format, and the doubts it raises. Imports no framework and no numpy."""

from vmselect.profile.files import load_profiles
from vmselect.profile.findings import Finding
from vmselect.profile.record import (
    FORMAT,
    Boundary,
    Environment,
    Epoch,
    Fact,
    Gpu,
    Placement,
    Profile,
    Setup,
    Steps,
    Timeline,
    Validation,
)

__all__ = [
    "FORMAT",
    "Boundary",
    "Environment",
    "Epoch",
    "Fact",
    "Finding",
    "Gpu",
    "Placement",
    "Profile",
    "Setup",
    "Steps",
    "Timeline",
    "Validation",
    "load_profiles",
]
