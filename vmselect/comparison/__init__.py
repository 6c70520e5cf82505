"""TEST: are groups of measurements really different, which factor matters, which machine meets the requirements."""

from vmselect.comparison.experiment import Effects, effects
from vmselect.comparison.judgement import compare
from vmselect.comparison.requirements import Need, Requirements, Scores
from vmselect.comparison.result import Comparison

__all__ = ["Comparison", "Effects", "Need", "Requirements", "Scores", "compare", "effects"]
