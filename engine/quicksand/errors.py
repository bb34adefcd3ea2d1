"""The errors of this package, under their public name."""

from quicksand.base.errors import *  # noqa: F403
