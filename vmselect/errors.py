"""Every error that vmselect raises on purpose.

::

    VmselectError
     ├─ ArgumentError          a value passed by the caller cannot be used        (also a ValueError)
     │   └─ PlanError          a sweep's plan cannot be used; ``where`` locates the fault
     ├─ ProfileError           a profile or study file cannot be read, or does not fit its purpose
     ├─ ProbeError             a training could not be measured
     │   └─ TransferError      files could not be transferred, verified or removed
     ├─ EstimateError          the profile does not support the estimate
     ├─ CatalogError           a price is missing, or a price file cannot be used
     │   └─ RefreshError       a provider's price API gave no usable answer
     ├─ RankingError           the candidates cannot be compared
     ├─ ComparisonError        groups of records cannot be compared, or lack the metric
     ├─ SweepError             a sweep cannot be started, continued or cleaned up
     └─ MissingPackageError    an optional package is needed for this feature     (also an ImportError)

Catch :class:`VmselectError` to catch them all. Messages contain the fact and the remedy.
"""

from vmselect.units import printable_lines


class VmselectError(Exception):
    """Base of every error raised on purpose."""

    def __str__(self) -> str:
        return printable_lines(super().__str__())  # names of files, machines and models may contain control characters


class ArgumentError(VmselectError, ValueError):
    """A value passed by the caller cannot be used."""


class PlanError(ArgumentError):
    """A sweep's plan cannot be used. ``where`` is the path of keys to the place in it."""

    def __init__(self, message: str, where: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.where = where


class ProfileError(VmselectError):
    """A profile or study file cannot be read, or does not fit its purpose."""


class ProbeError(VmselectError):
    """A training could not be measured."""


class TransferError(ProbeError):
    """Files could not be transferred, verified or removed."""


class EstimateError(VmselectError):
    """The profile does not support the estimate."""


class CatalogError(VmselectError):
    """A price is missing, or a price file cannot be used."""


class RefreshError(CatalogError):
    """A provider's price API gave no usable answer."""


class RankingError(VmselectError):
    """The candidates cannot be compared."""


class ComparisonError(VmselectError):
    """Groups of records cannot be compared, or lack the metric."""


class SweepError(VmselectError):
    """A sweep cannot be started, continued or cleaned up."""


class MissingPackageError(VmselectError, ImportError):
    """An optional package is needed for this feature and is not installed."""
