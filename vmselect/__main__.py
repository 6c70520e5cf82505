"""``python -m vmselect``: the command line of this interpreter, where no ``vmselect`` is on the path."""

from vmselect.cli import main

if __name__ == "__main__":
    main()
