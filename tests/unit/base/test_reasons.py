"""What is wrong, as an exception tells it to a person."""

from __future__ import annotations

import json

import pytest
from quicksand.base.error_text import reason_of
from quicksand.base.errors import BootTimeoutError, ConfigError


def test_no_reason_has_words_of_pythons_own_exceptions() -> None:
    said = {
        ConfigError("the name is too long", hint="shorten it"): "the name is too long",
        BootTimeoutError("no agent", log="a\nb"): "no agent",
        OSError(28, "No space left on device", "/x"): "No space left on device",
        TimeoutError(): "no answer came in time",
        KeyError("disk"): "disk is missing",
        ValueError("it is of the sandbox 'b'"): "it is of the sandbox 'b'",
        RecursionError("maximum recursion depth"): "it is nested too deeply",
        EOFError(): "it is cut off",
        TypeError("'int' object is not iterable"): "it does not have the form that it must have",
        NameError("name 'x'"): "it does not have the form that it must have",
    }
    wrong = {error: reason_of(error) for error, text in said.items() if reason_of(error) != text}
    assert not wrong


def test_what_is_no_json_or_no_text_is_called_so() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{\n]")
    assert reason_of(caught.value) == "it is no JSON (line 2)"
    with pytest.raises(UnicodeDecodeError) as bad:
        b"\xff".decode()
    assert reason_of(bad.value) == "it has text that is not valid"
