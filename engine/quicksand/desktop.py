"""`Desktop` under its public name."""

from quicksand.life.sandbox_desktop import Desktop

__all__ = ["Desktop"]
