"""The questions that ssh asks the user on the way to another machine."""

from __future__ import annotations

from enum import StrEnum

from quicksand.things.frozen import frozen


class SshQuestionKind(StrEnum):
    """The kinds of answers that ssh waits for; the values are the engine's
    (`quicksand.remote.askpass`)."""

    SECRET = "secret"  # noqa: S105 - the kind of question
    """A text: a password, a passphrase, "yes" or a fingerprint. ssh does not tell which."""
    CONFIRM = "confirm"
    """"yes" or "no"."""
    NOTICE = "none"
    """No answer: the user touches a security key."""


ANSWER_MAX = 1023
"""Bytes of an answer that ssh takes (readpass.c)."""


@frozen
class SshQuestion:
    """A question of ssh."""

    host: str
    """The destination of ssh, as the user named it."""
    prompt: str
    """The words of ssh or of that machine: bounded lines without control characters."""
    kind: SshQuestionKind
