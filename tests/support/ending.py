"""A training that ends badly; run as a program: ``ending.py KIND PROFILE``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fits import BATCH, Log, make_data, make_model

import vmselect as vs


def fail():
    raise RuntimeError("nobody catches this")


def kill(number):
    os.kill(os.getpid(), number)


def leave():
    sys.exit(7)


def main(kind: str, path: str) -> None:
    import signal

    endings = {"exception": fail, "sigint": lambda: kill(signal.SIGINT), "sigterm": lambda: kill(signal.SIGTERM),
               "exit": leave}  # fmt: skip
    probe = vs.IterationProbe(path, stop=False)
    if kind == "data":  # the data fails, between two steps

        def batches():
            for number in range(40):
                if number == 25:
                    fail()
                yield make_data(1)

        make_model().fit(batches(), steps_per_epoch=40, epochs=5, verbose=0, callbacks=[probe])
    else:
        log = Log(("batch", 20), endings[kind])
        make_model().fit(*make_data(60), batch_size=BATCH, epochs=5, verbose=0, callbacks=[probe, log])


if __name__ == "__main__":
    main(*sys.argv[1:])
