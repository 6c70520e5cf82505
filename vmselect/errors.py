"""Every error that vmselect raises on purpose.

::

    VmselectError
     ├─ ArgumentError          a value passed by the caller cannot be used        (also a ValueError)
     │   └─ PlanError          a sweep's plan cannot be used; ``where`` locates the fault
     ├─ ProfileError           a profile or study file cannot be read, or does not fit its purpose
     ├─ ProbeError             a training could not be measured
     │   └─ TransferError      files could not be moved, verified or removed
     ├─ EstimateError          a prediction was asked for that the profile cannot support
     ├─ CatalogError           a price is missing, or a price file cannot be used
     │   └─ RefreshError       a provider's price API did not give a usable answer
     ├─ RankingError           the candidates cannot be compared
     ├─ ComparisonError        groups of records cannot be compared, or hold nothing of what is asked
     ├─ SweepError             a sweep cannot be started, continued or cleaned up
     └─ MissingPackageError    an optional package is needed for this feature     (also an ImportError)

Catch :class:`VmselectError` to catch them all. Messages state the fact and then the remedy.
"""

from vmselect.units import printable_lines


class VmselectError(Exception):
    """Base of every error raised on purpose."""

    def __str__(self) -> str:
        return printable_lines(super().__str__())  # names of files, machines and models are other people's


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
    """Files could not be moved to a store and back, verified, or removed from it."""


class EstimateError(VmselectError):
    """A prediction was asked for that the profile cannot support."""


class CatalogError(VmselectError):
    """A price is missing, or a price file cannot be used."""


class RefreshError(CatalogError):
    """A provider's price API did not give a usable answer."""


class RankingError(VmselectError):
    """The candidates cannot be compared."""


class ComparisonError(VmselectError):
    """Groups of records cannot be compared, or hold nothing of what is asked."""


class SweepError(VmselectError):
    """A sweep cannot be started, continued or cleaned up."""


class MissingPackageError(VmselectError, ImportError):
    """An optional package is needed for this feature and is not installed."""
