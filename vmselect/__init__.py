"""Which cloud VM should I rent to train this model, and what will it take in hours and dollars?

Measure on each candidate machine, for seconds, inside the training you already have::

    import vmselect as vs

    model.fit(x, y, epochs=50, validation_data=val, callbacks=[vs.IterationProbe("profiles/")])

Decide anywhere, with no GPU, no Keras and no network::

    vs.rank(vs.load_profiles("profiles/"), epochs=50).report("report.html")

Importing this package imports nothing heavy: each name below is loaded when it is first used.
"""

from __future__ import annotations

from vmselect import _interrupt  # noqa: F401 - before all imports that take time

# isort: split
from typing import TYPE_CHECKING

from vmselect import errors as errors
from vmselect._imports import load_on_use

try:
    from vmselect._version import __version__  # written when the package is built or installed
except ImportError:
    __version__ = "0.1.0"

if TYPE_CHECKING:
    from vmselect import energy as energy
    from vmselect import serving as serving
    from vmselect import stats as stats
    from vmselect.catalog import Catalog as Catalog
    from vmselect.catalog import Offer as Offer
    from vmselect.comparison.groups import compare as compare
    from vmselect.convergence import ConvergenceStudy as ConvergenceStudy
    from vmselect.diagnosis import diagnose as diagnose
    from vmselect.estimation import Workload as Workload
    from vmselect.estimation import equations as equations
    from vmselect.estimation import estimate as estimate
    from vmselect.prediction import estimate_memory as estimate_memory
    from vmselect.prediction import predict as predict
    from vmselect.probe.convergence import ConvergenceProbe as ConvergenceProbe
    from vmselect.probe.description import describe as describe
    from vmselect.probe.environment import mark_start as mark_start
    from vmselect.probe.keras import EpochProbe as EpochProbe
    from vmselect.probe.keras import IterationProbe as IterationProbe
    from vmselect.probe.loop import probe_loop as probe_loop
    from vmselect.probe.trainers import HuggingFaceProbe as HuggingFaceProbe
    from vmselect.probe.trainers import LightningProbe as LightningProbe
    from vmselect.ranking import Interruptions as Interruptions
    from vmselect.ranking import Ranking as Ranking
    from vmselect.ranking import Scale as Scale
    from vmselect.ranking import rank as rank
    from vmselect.recommendation import recommend as recommend
    from vmselect.records import Profile as Profile
    from vmselect.records import load_profiles as load_profiles
    from vmselect.records import load_records as load_records
    from vmselect.records.history import history as history
    from vmselect.scoring.score import score as score
    from vmselect.sweeps import Plan as Plan
    from vmselect.sweeps import skypilot_estimator as skypilot_estimator
    from vmselect.sweeps import sweep as sweep
    from vmselect.watching.callbacks import Watch as Watch

_HOMES = {
    "vmselect.catalog": ("Catalog", "Offer",),
    "vmselect.comparison.groups": ("compare",),
    "vmselect.convergence": ("ConvergenceStudy",),
    "vmselect.diagnosis": ("diagnose",),
    "vmselect.energy": ("energy",),
    "vmselect.estimation": ("Workload", "equations", "estimate",),
    "vmselect.prediction": ("estimate_memory", "predict",),
    "vmselect.probe.convergence": ("ConvergenceProbe",),
    "vmselect.probe.description": ("describe",),
    "vmselect.probe.environment": ("mark_start",),
    "vmselect.probe.keras": ("EpochProbe", "IterationProbe",),
    "vmselect.probe.loop": ("probe_loop",),
    "vmselect.probe.trainers": ("HuggingFaceProbe", "LightningProbe",),
    "vmselect.ranking": ("Interruptions", "Ranking", "Scale", "rank",),
    "vmselect.recommendation": ("recommend",),
    "vmselect.records": ("Profile", "load_profiles", "load_records",),
    "vmselect.records.history": ("history",),
    "vmselect.scoring.score": ("score",),
    "vmselect.serving": ("serving",),
    "vmselect.stats": ("stats",),
    "vmselect.sweeps": ("Plan", "skypilot_estimator", "sweep",),
    "vmselect.watching.callbacks": ("Watch",),
}  # fmt: skip
_names, __getattr__ = load_on_use(__name__, _HOMES)
__all__ = ["__version__", "errors", *_names]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
