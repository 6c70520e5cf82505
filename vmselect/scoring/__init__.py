"""Scoring: comparison of forecasts with outcomes, and recalibration of intervals by these outcomes."""

from vmselect.scoring.matching import Case as Case
from vmselect.scoring.matching import Unscored as Unscored
from vmselect.scoring.track_record import Score as Score
from vmselect.scoring.track_record import score as score
