"""Measure: probes that watch a training and leave a profile. The only package that uses a training framework.

A probe runs inside the user's training, so importing one loads nothing that it does not need.
"""
