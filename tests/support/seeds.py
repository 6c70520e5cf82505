"""Seeds for trainings in tests. Import after ``KERAS_BACKEND`` has been decided."""

from __future__ import annotations

import sys

import keras


def set_seed(seed: int) -> None:
    """Keras's own seeding, without TensorFlow where that is not the backend.

    Keras seeds TensorFlow wherever it is installed and imports it to that end: seconds in every process, and beside
    torch such a process has crashed.
    """
    if keras.backend.backend() == "tensorflow" or "tensorflow" in sys.modules:
        keras.utils.set_random_seed(seed)
        return
    sys.modules["tensorflow"] = None  # type: ignore[assignment]  # an import of it fails, as if it were not installed
    try:
        keras.utils.set_random_seed(seed)
    finally:
        del sys.modules["tensorflow"]
