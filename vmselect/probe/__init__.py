"""Probes, which measure a training, inference or a data transfer and write a record.

Only this package uses a training framework. A probe runs inside the user's program, so importing a probe imports only
the modules that it needs.
"""
