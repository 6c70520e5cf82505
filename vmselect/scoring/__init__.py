"""Scoring: comparison of forecasts with outcomes, and recalibration of intervals by these outcomes."""
