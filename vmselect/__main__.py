"""``python -m vmselect``: the command line, for environments in which the command ``vmselect`` is not on the path."""

from vmselect.cli import main

if __name__ == "__main__":
    main()
