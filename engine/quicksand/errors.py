"""The errors of this package, under their public names: all that `base.errors` defines."""

from typing import TYPE_CHECKING

from quicksand.base import errors
from quicksand.base.errors import *

if not TYPE_CHECKING:
    _kinds = (kind for kind in vars(errors).values() if isinstance(kind, type))
    _ours = (kind.__name__ for kind in _kinds if issubclass(kind, errors.QuicksandError))
    __all__ = ["AgentCode", *_ours]  # noqa: F405, PLE0604
