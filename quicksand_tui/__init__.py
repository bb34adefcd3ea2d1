"""The terminal UI and the commands of quicksand."""

__version__ = "0.1.0"
