"""Which names of machine types tell that the machine has a GPU, for records that are examined without prices."""

from __future__ import annotations

import re

FAMILIES = (
    r"^(?:ml\.)?(?:gr?\d\w*|p\d\w*|dl\d\w*|inf\d|trn\d\w*|vt\d)\.",  # AWS
    r"^Standard_N[CDGV]",  # Azure
    r"^(?:a\d-(?:high|mega|ultra|max)|g\d-standard)",  # Google Cloud
    r"(?<![a-z0-9])(?:\d+x?[_-]?)?(?:nvidia|tesla|geforce|quadro|rtx|gtx|titan|gaudi|gpu|tpu)",
    r"(?<![a-z0-9])(?:\d+x?[_-]?)?(?:[abhlkvp]\d{2,3}s?|a[4-6]\d00|mi\d{2,3}x?|gh200|gb\d00|l4|p4|t4)(?:x\d+)?(?![a-z0-9])",
)
"""Families of machine types with GPUs or other accelerators, and models of GPUs as a word of a name.

No machine type without a GPU in the price catalog has such a name, and most of those with a GPU have one.
"""
_NAMES = re.compile("|".join(FAMILIES), re.IGNORECASE)


def names_gpu(instance_type: str) -> bool:
    """Whether the name of a machine type shows that the machine has a GPU.

    >>> [names_gpu(name) for name in ("g5.xlarge", "1x_RTXA5000_SECURE", "lab-rtx4090", "c5.large", "t4g.small")]
    [True, True, True, False, False]
    """
    return _NAMES.search(instance_type) is not None
