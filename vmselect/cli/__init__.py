"""The command line: ``vmselect probe | estimate | rank | report | prices | check | select``."""
