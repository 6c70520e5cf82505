"""Which cloud VM should I rent to train this model, and what will it take in hours and dollars?

Measure on each candidate machine, for seconds, inside the training you already have::

    import vmselect as vs

    model.fit(x, y, epochs=50, validation_data=val, callbacks=[vs.IterationProbe("profiles/")])

Decide anywhere, with no GPU, no Keras and no network::

    vs.rank(vs.load_profiles("profiles/"), epochs=50).report("report.html")

Importing this package imports nothing heavy: each name below is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vmselect import errors as errors
    from vmselect.catalog import Catalog as Catalog
    from vmselect.catalog import Offer as Offer
    from vmselect.comparison import Requirements as Requirements
    from vmselect.comparison import compare as compare
    from vmselect.comparison import effects as effects
    from vmselect.comparison import scaling as scaling
    from vmselect.convergence import ConvergenceStudy as ConvergenceStudy
    from vmselect.diagnosis import Diagnosis as Diagnosis
    from vmselect.diagnosis import diagnose as diagnose
    from vmselect.estimation import RuntimeEstimate as RuntimeEstimate
    from vmselect.estimation import Workload as Workload
    from vmselect.estimation import equations as equations
    from vmselect.estimation import estimate as estimate
    from vmselect.findings import Finding as Finding
    from vmselect.probe import Alarm as Alarm
    from vmselect.probe import ConvergenceProbe as ConvergenceProbe
    from vmselect.probe import EpochProbe as EpochProbe
    from vmselect.probe import HuggingFaceProbe as HuggingFaceProbe
    from vmselect.probe import InferenceProbe as InferenceProbe
    from vmselect.probe import IterationProbe as IterationProbe
    from vmselect.probe import LightningProbe as LightningProbe
    from vmselect.probe import clean_transfers as clean_transfers
    from vmselect.probe import mark_start as mark_start
    from vmselect.probe import probe_inference as probe_inference
    from vmselect.probe import probe_loop as probe_loop
    from vmselect.probe import probe_transfer as probe_transfer
    from vmselect.ranking import Bill as Bill
    from vmselect.ranking import Ranking as Ranking
    from vmselect.ranking import Transfer as Transfer
    from vmselect.ranking import rank as rank
    from vmselect.ranking import rank_inference as rank_inference
    from vmselect.ranking import select as select
    from vmselect.records import InferenceRecord as InferenceRecord
    from vmselect.records import Profile as Profile
    from vmselect.records import TransferRecord as TransferRecord
    from vmselect.records import load_profiles as load_profiles
    from vmselect.records import load_records as load_records
    from vmselect.sweeps import Plan as Plan
    from vmselect.sweeps import skypilot_estimator as skypilot_estimator
    from vmselect.sweeps import sweep as sweep

_HOME = {
    "Bill": "vmselect.ranking",
    "Alarm": "vmselect.probe",
    "Catalog": "vmselect.catalog",
    "ConvergenceProbe": "vmselect.probe",
    "ConvergenceStudy": "vmselect.convergence",
    "Diagnosis": "vmselect.diagnosis",
    "EpochProbe": "vmselect.probe",
    "Finding": "vmselect.findings",
    "HuggingFaceProbe": "vmselect.probe",
    "InferenceProbe": "vmselect.probe",
    "InferenceRecord": "vmselect.records",
    "IterationProbe": "vmselect.probe",
    "LightningProbe": "vmselect.probe",
    "Offer": "vmselect.catalog",
    "Plan": "vmselect.sweeps",
    "Profile": "vmselect.records",
    "Ranking": "vmselect.ranking",
    "Requirements": "vmselect.comparison",
    "RuntimeEstimate": "vmselect.estimation",
    "Transfer": "vmselect.ranking",
    "TransferRecord": "vmselect.records",
    "Workload": "vmselect.estimation",
    "compare": "vmselect.comparison",
    "effects": "vmselect.comparison",
    "clean_transfers": "vmselect.probe",
    "diagnose": "vmselect.diagnosis",
    "estimate": "vmselect.estimation",
    "load_profiles": "vmselect.records",
    "load_records": "vmselect.records",
    "mark_start": "vmselect.probe",
    "probe_inference": "vmselect.probe",
    "probe_loop": "vmselect.probe",
    "probe_transfer": "vmselect.probe",
    "rank": "vmselect.ranking",
    "rank_inference": "vmselect.ranking",
    "scaling": "vmselect.comparison",
    "select": "vmselect.ranking",
    "skypilot_estimator": "vmselect.sweeps",
    "sweep": "vmselect.sweeps",
}
_MODULES = {"equations": "vmselect.estimation.equations", "errors": "vmselect.errors"}

__all__ = ["__version__", *sorted(_HOME), *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    else:
        raise AttributeError(f"module 'vmselect' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
