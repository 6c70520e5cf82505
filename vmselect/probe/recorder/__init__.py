"""The stopwatch of a training and what it keeps: knows no framework."""
