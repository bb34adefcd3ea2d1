"""Reasons of exceptions in words for a person.

Python's own exceptions name types, and names of our code, which help nobody but us.
"""

from __future__ import annotations

import json

from quicksand.base.errors import QuicksandError


def reason_of(error: BaseException) -> str:
    """Returns the fault of input or of a request in words. An exception of our own and a ValueError
    that we raise have these; all others are described by their kind."""
    match error:
        case QuicksandError() if error.args:
            said = str(error.args[0])  # without the log that it may carry
        case TimeoutError():
            said = "no answer came in time"
        case OSError():
            said = error.strerror or "the host refused it"
        case KeyError() if error.args and isinstance(error.args[0], str):
            said = f"{error.args[0]} is missing"
        case json.JSONDecodeError():
            said = f"it is no JSON (line {error.lineno})"
        case UnicodeError():
            said = "it has text that is not valid"
        case ValueError() if error.args:
            said = str(error)
        case RecursionError():
            said = "it is nested too deeply"
        case EOFError():
            said = "it is cut off"
        case _:
            said = "it does not have the form that it must have"
    return said
