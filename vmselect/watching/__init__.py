"""Accounts of running trainings: remaining time, money so far, limits that hold, and whether moving pays."""
