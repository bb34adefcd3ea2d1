"""The terminal UI and the commands of quicksand."""

__version__ = "0.2.0"
