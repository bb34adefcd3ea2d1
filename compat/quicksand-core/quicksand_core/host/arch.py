"""The host's architecture. The two functions with an underscore are used by published image
packages."""

from quicksand import Architecture

__all__ = ["Architecture"]


def _detect_architecture() -> Architecture:
    """This host's architecture. Raises ConfigError if it is not supported."""
    return Architecture.host()


def _is_emulated() -> bool:
    """Whether this Python is emulated without its knowledge. That is so on Windows only, where
    quicksand-tui does not run."""
    return False
