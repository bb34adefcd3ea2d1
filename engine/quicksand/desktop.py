"""`Desktop` under its public name."""

from quicksand.life.desktop import Desktop

__all__ = ["Desktop"]
