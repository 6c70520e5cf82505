"""Which cloud VM should I rent to train this model, and what will it take in hours and dollars?

Measure on each candidate machine, for seconds, inside the training you already have::

    import vmselect as vs

    model.fit(x, y, epochs=50, validation_data=val, callbacks=[vs.IterationProbe("profiles/")])

Decide anywhere, with no GPU, no Keras and no network::

    vs.rank(vs.load_profiles("profiles/"), epochs=50).report("report.html")

Importing this package imports nothing heavy: each name below is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmselect import errors as errors
from vmselect._optional import load_on_use

try:
    from vmselect._version import __version__  # written when the package is built or installed
except ImportError:
    __version__ = "0.1.0"

if TYPE_CHECKING:
    from vmselect import energy as energy
    from vmselect.catalog import Catalog as Catalog
    from vmselect.catalog import Offer as Offer
    from vmselect.comparison import Requirements as Requirements
    from vmselect.comparison import compare as compare
    from vmselect.comparison import effects as effects
    from vmselect.comparison import retrieve_and_infer as retrieve_and_infer
    from vmselect.comparison import scaling as scaling
    from vmselect.convergence import ConvergenceStudy as ConvergenceStudy
    from vmselect.diagnosis import Diagnosis as Diagnosis
    from vmselect.diagnosis import diagnose as diagnose
    from vmselect.estimation import RuntimeEstimate as RuntimeEstimate
    from vmselect.estimation import Workload as Workload
    from vmselect.estimation import equations as equations
    from vmselect.estimation import estimate as estimate
    from vmselect.findings import Finding as Finding
    from vmselect.prediction import estimate_memory as estimate_memory
    from vmselect.prediction import predict as predict
    from vmselect.probe.convergence import ConvergenceProbe as ConvergenceProbe
    from vmselect.probe.environment import mark_start as mark_start
    from vmselect.probe.inference import InferenceProbe as InferenceProbe
    from vmselect.probe.inference import probe_inference as probe_inference
    from vmselect.probe.keras_callbacks import EpochProbe as EpochProbe
    from vmselect.probe.keras_callbacks import IterationProbe as IterationProbe
    from vmselect.probe.loop import probe_loop as probe_loop
    from vmselect.probe.sampling import Alarm as Alarm
    from vmselect.probe.trainers import HuggingFaceProbe as HuggingFaceProbe
    from vmselect.probe.trainers import LightningProbe as LightningProbe
    from vmselect.probe.transfer import clean_transfers as clean_transfers
    from vmselect.probe.transfer import probe_transfer as probe_transfer
    from vmselect.ranking import Bill as Bill
    from vmselect.ranking import Ranking as Ranking
    from vmselect.ranking import Transfer as Transfer
    from vmselect.ranking import rank as rank
    from vmselect.ranking import rank_inference as rank_inference
    from vmselect.ranking import select as select
    from vmselect.records import Forecast as Forecast
    from vmselect.records import InferenceRecord as InferenceRecord
    from vmselect.records import Profile as Profile
    from vmselect.records import TransferRecord as TransferRecord
    from vmselect.records import load_profiles as load_profiles
    from vmselect.records import load_records as load_records
    from vmselect.records.queries import history as history
    from vmselect.scoring.score import Score as Score
    from vmselect.scoring.score import score as score
    from vmselect.sweeps import Plan as Plan
    from vmselect.sweeps import skypilot_estimator as skypilot_estimator
    from vmselect.sweeps import sweep as sweep

_HOMES = {
    "vmselect.catalog": ("Catalog", "Offer",),
    "vmselect.comparison": ("Requirements", "compare", "effects", "retrieve_and_infer", "scaling",),
    "vmselect.convergence": ("ConvergenceStudy",),
    "vmselect.diagnosis": ("Diagnosis", "diagnose",),
    "vmselect.energy": ("energy",),
    "vmselect.estimation": ("RuntimeEstimate", "Workload", "equations", "estimate",),
    "vmselect.findings": ("Finding",),
    "vmselect.prediction": ("estimate_memory", "predict",),
    "vmselect.probe.convergence": ("ConvergenceProbe",),
    "vmselect.probe.environment": ("mark_start",),
    "vmselect.probe.inference": ("InferenceProbe", "probe_inference",),
    "vmselect.probe.keras_callbacks": ("EpochProbe", "IterationProbe",),
    "vmselect.probe.loop": ("probe_loop",),
    "vmselect.probe.sampling": ("Alarm",),
    "vmselect.probe.trainers": ("HuggingFaceProbe", "LightningProbe",),
    "vmselect.probe.transfer": ("clean_transfers", "probe_transfer",),
    "vmselect.ranking": ("Bill", "Ranking", "Transfer", "rank", "rank_inference", "select",),
    "vmselect.records": ("Forecast", "InferenceRecord", "Profile", "TransferRecord", "load_profiles", "load_records",),
    "vmselect.records.queries": ("history",),
    "vmselect.scoring.score": ("Score", "score",),
    "vmselect.sweeps": ("Plan", "skypilot_estimator", "sweep",),
}  # fmt: skip
_names, __getattr__ = load_on_use(__name__, _HOMES)
__all__ = ["__version__", "errors", *_names]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
