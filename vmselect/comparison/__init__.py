"""Comparison of groups of measurements, effects of factors, and scores of machines by requirements."""
