"""Minimal substitutes for parts of the standard library, which let the server start faster.

A sandbox waits for its server to start, which takes 16.5 ms of processor time. With the module of
the standard library it would take more by this much (medians of 40 starts by turns, Python 3.11):

    typing       8.0 ms    mostly to make the named tuples
    enum         3.3 ms
    signal       2.3 ms
    hashlib      1.5 ms
    threading    1.3 ms
    collections  0.5 ms
    collections.abc  0.5 ms

All together take 12.7 ms more. Measured again, beside other work: 28 ms as it is, 33 with `enum`,
41 with `NamedTuple`, 48 with all (125, 154, 185 and 217 million instructions).

The server also uses `_socket` (3.5 ms less than `socket`), and the scanner of `_json` (3.8 ms less
than `json`, config.py).

Type checkers see the real classes. Members of the enumerations here are plain attributes; reading
one takes a quarter of the time.
"""

from __future__ import annotations

from _operator import _compare_digest as compare_digest
from _operator import itemgetter
from _thread import start_new_thread

__all__ = [
    "TYPE_CHECKING",
    "Any",
    "Callable",
    "Enum",
    "Final",
    "IntEnum",
    "Iterable",
    "Iterator",
    "NamedTuple",
    "Protocol",
    "Sequence",
    "auto",
    "compare_digest",
    "deque",
    "hmac_digest",
    "md5",
    "sha512",
    "signal",
    "start_thread",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections import deque
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from enum import Enum, IntEnum, auto
    from typing import Any, Final, NamedTuple, Protocol
else:
    import _signal as signal
    from _collections import deque
    from _collections_abc import Callable, Iterable, Iterator, Sequence

    Any = object

    class Final:
        """A type that only annotations use."""

        def __class_getitem__(cls, item):
            return cls

    class Protocol:
        """A base class that only type checkers use."""

    class auto:  # noqa: N801 - the name it has in `enum`
        """A member without a value of its own."""

    class Enum:
        """An enumeration whose members are compared by identity."""

        def __init_subclass__(cls):
            for name, value in list(vars(cls).items()):
                if not name.startswith("_") and isinstance(value, (auto, int)):
                    member = object.__new__(cls)
                    member.name = name
                    setattr(cls, name, member)

        def __repr__(self):
            return f"{type(self).__name__}.{self.name}"

    class IntEnum(int):
        """An enumeration whose members are integers. The first name of a value counts."""

        def __init_subclass__(cls):
            cls._members = {}
            for name, value in list(vars(cls).items()):
                if not name.startswith("_") and isinstance(value, int):
                    member = cls._members.get(value)
                    if member is None:
                        member = cls._members[value] = int.__new__(cls, value)
                        member.name = name
                    setattr(cls, name, member)

        def __new__(cls, value):
            member = cls._members.get(value)
            if member is None:
                raise ValueError(f"{value!r} is no {cls.__name__}")
            return member

        def __repr__(self):
            return f"{type(self).__name__}.{self.name}"

    class NamedTuple(tuple):
        """A tuple whose items have names, and the last ones default values."""

        __slots__ = ()

        def __init_subclass__(cls):
            cls._fields = tuple(cls.__annotations__)
            cls._defaults = {
                name: cls.__dict__[name] for name in cls._fields if name in cls.__dict__
            }
            for index, name in enumerate(cls._fields):
                setattr(cls, name, property(itemgetter(index)))

        def __new__(cls, *values, **named):
            if named or len(values) != len(cls._fields):
                values = cls._complete(values, named)
            return tuple.__new__(cls, values)

        @classmethod
        def _complete(cls, values, named):
            missing = cls._fields[len(values) :]
            given = {name: cls._defaults[name] for name in missing if name in cls._defaults}
            given.update(named)
            if len(values) > len(cls._fields) or given.keys() != set(missing):
                raise TypeError(f"{cls.__name__} takes {', '.join(cls._fields)}")
            return [*values, *[given[name] for name in missing]]

        def _replace(self, **named):
            return type(self)(
                *[named.pop(name, value) for name, value in zip(self._fields, self, strict=True)],
                **named,
            )

        def __repr__(self):
            pairs = [f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True)]
            return f"{type(self).__name__}({', '.join(pairs)})"


def start_thread(work: Callable[[], None]) -> None:
    """Run `work` in a new thread, which does not keep the process alive."""
    start_new_thread(work, ())


def sha512(data: bytes) -> bytes:
    """Return the SHA-512 digest without `hashlib`, which loads OpenSSL first (1.6 ms)."""
    for name in ("_sha512", "_sha2"):  # up to Python 3.11, and since
        try:
            digest: bytes = __import__(name).sha512(data).digest()
        except ImportError:
            continue
        return digest
    import hashlib  # noqa: PLC0415

    return hashlib.sha512(data).digest()


def hmac_digest(key: bytes, message: bytes, name: str) -> bytes:
    """Return the HMAC of a message with the hash function of that name."""
    import hmac  # noqa: PLC0415

    return hmac.digest(key, message, name)


def md5(data: bytes) -> bytes:
    """Return the MD5 digest, which [MS-NLMP] uses where no attacker can choose the data."""
    import hashlib  # noqa: PLC0415

    return hashlib.md5(data, usedforsecurity=False).digest()
