"""Records: measurements, their file formats, and warnings about them. Imports no framework and no numpy."""

from vmselect.records.inference import InferenceRecord
from vmselect.records.record import Environment, Fact, Gpu, Placement, Record
from vmselect.records.store import load_profiles, load_records
from vmselect.records.training import (
    Boundary,
    Epoch,
    Fit,
    InputWait,
    Pause,
    Profile,
    Setup,
    Step,
    Steps,
    Timeline,
    Validation,
)
from vmselect.records.transfer import TransferRecord
from vmselect.records.usage import Usage

__all__ = [
    "Boundary",
    "Environment",
    "Epoch",
    "Fact",
    "Fit",
    "Gpu",
    "InferenceRecord",
    "InputWait",
    "Pause",
    "Placement",
    "Profile",
    "Record",
    "Setup",
    "Step",
    "Steps",
    "Timeline",
    "TransferRecord",
    "Usage",
    "Validation",
    "load_profiles",
    "load_records",
]
