"""Every error that vmselect raises on purpose.

::

    VmselectError
     ├─ ArgumentError          an argument has an invalid value                   (also a ValueError)
     │   └─ PlanError          the plan of a sweep is invalid; ``where`` has the keys of the entry
     ├─ ProfileError           a record file cannot be read or written, or is of the wrong kind
     ├─ ProbeError             a training, an inference or a transfer could not be measured
     │   └─ TransferError      files could not be transferred, verified or removed
     ├─ DescriptionError       the operations of a model cannot be counted from its definition
     ├─ EstimateError          the training time cannot be estimated from the profile
     ├─ CatalogError           a price is missing, or a price file is invalid
     │   └─ RefreshError       prices could not be fetched from a provider
     ├─ RankingError           the machines cannot be ranked
     │   └─ MissingNamesError  a machine, size or region that was named is missing (also a CatalogError)
     ├─ ComparisonError        records cannot be compared, or do not contain the requested metric
     ├─ SweepError             a sweep cannot be started, continued or cleaned up
     └─ MissingPackageError    an optional package is needed for this feature     (also an ImportError)

Catch :class:`VmselectError` to catch all of these. Messages state what happened and what to do.
"""

from vmselect.units import printable_lines


class VmselectError(Exception):
    """Base class of all errors that vmselect raises on purpose."""

    def __str__(self) -> str:
        return printable_lines(super().__str__())  # names of files, machines and models may contain control characters


class ArgumentError(VmselectError, ValueError):
    """An argument has an invalid value."""


class PlanError(ArgumentError):
    """The plan of a sweep is invalid. ``where`` contains the keys and positions that lead to the invalid entry."""

    def __init__(self, message: str, where: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.where = where


class ProfileError(VmselectError):
    """A record file cannot be read or written, or is of the wrong kind."""


class ProbeError(VmselectError):
    """A training, an inference or a transfer could not be measured."""


class TransferError(ProbeError):
    """Files could not be transferred, verified or removed."""


class DescriptionError(VmselectError):
    """The operations of a model cannot be counted from its definition."""


class EstimateError(VmselectError):
    """The training time cannot be estimated from the profile."""


class CatalogError(VmselectError):
    """A price is missing, or a price file is invalid."""


class RefreshError(CatalogError):
    """Prices could not be fetched from a provider."""


class RankingError(VmselectError):
    """The machines cannot be ranked."""


class MissingNamesError(CatalogError, RankingError):
    """A machine, batch size, region, provider or GPU that was asked for by name cannot be ranked.

    ``names`` are the values of the ``argument`` that are missing.
    """

    def __init__(self, message: str, argument: str = "", names: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.argument = argument
        self.names = names


class ComparisonError(VmselectError):
    """Records cannot be compared, or do not contain the requested metric."""


class SweepError(VmselectError):
    """A sweep cannot be started, continued or cleaned up."""


class MissingPackageError(VmselectError, ImportError):
    """An optional package is needed for this feature and is not installed."""
