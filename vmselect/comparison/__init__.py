"""Comparison of groups of measurements, effects of factors, and scores of machines by requirements.

``runs`` reads what is compared, and ``significance`` has the statistics. The other modules have one result each. The
models of its JSON are at the end of the same module, in classes whose names end in ``Output``.
"""
