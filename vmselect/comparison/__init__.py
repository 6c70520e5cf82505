"""TEST: are groups of measurements really different, which factor matters, which machine meets the requirements."""

from vmselect.comparison.experiment import Effects, effects
from vmselect.comparison.judgement import compare
from vmselect.comparison.requirements import Need, Requirements
from vmselect.comparison.result import Comparison
from vmselect.comparison.scores import Scores
from vmselect.comparison.speedup import Scaling, scaling

__all__ = ["Comparison", "Effects", "Need", "Requirements", "Scaling", "Scores", "compare", "effects", "scaling"]
