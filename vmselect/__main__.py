"""The command ``vmselect``, also as ``python -m vmselect``: it handles Ctrl-C before anything else is imported."""

from __future__ import annotations

from vmselect import _interrupt


def run() -> None:
    """Import and run the command line. Ctrl-C ends the import with one line and exit code 130."""
    is_caught = _interrupt.catch()
    from vmselect.cli import main

    if is_caught:
        _interrupt.release()
    main()


if __name__ == "__main__":
    run()
