"""Prints the public names of a Python package, one a line, with their kinds and signatures.

    python scripts/describe_api.py quicksand_core > tests/unit/compat/quicksand_core-0.14.0.txt

made the table of the published core, in an environment that has it; tests/unit/compat compares
compat/quicksand-core with that. Only names, parameters and values are printed, no sentences and no
code. A class or function that already has another name is printed as `NAME is THAT`.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from typing import Any

WANTED = frozenset({"_detect_architecture", "_is_emulated", "_resolve_save"})
"""Names with an underscore that published image packages use anyway."""

OURS = ("quicksand", "quicksand_core")
"""Packages whose classes' inherited members are described; those of others are not."""

SIMPLE = (str, int, float, bool, type(None))


def describe(package: str) -> Iterator[str]:
    """Yields a line for each public name of a package's modules, and each public member of their
    classes."""
    known: dict[int, str] = {}
    # The module that defines a name comes before those that only list it.
    modules = sorted(modules_of(package), key=lambda name: (-name.count("."), name))
    for is_own in (True, False):
        for name in modules:
            module = importlib.import_module(name)
            for one in sorted(names_in(module, is_own=is_own)):
                full, value = f"{name}.{one}", getattr(module, one)
                if is_own and callable(value):
                    known.setdefault(id(value), full)
                if known.get(id(value), full) != full:
                    yield f"{full} is {known[id(value)]}"
                else:
                    yield from lines_of(full, value)


def modules_of(package: str) -> Iterator[str]:
    """Yields the names of a package and of all modules in it."""
    root = importlib.import_module(package)
    yield package
    yield from (found.name for found in pkgutil.walk_packages(root.__path__, f"{package}."))


def names_in(module: Any, *, is_own: bool) -> set[str]:
    """The public names that a module defines, or those that it only lists in ``__all__``."""
    own = {name for name, value in vars(module).items() if is_defined_in(module, name, value)}
    return own if is_own else set(getattr(module, "__all__", ())) - own


def is_defined_in(module: Any, name: str, value: object) -> bool:
    """Whether a module defines a name for others."""
    if (name.startswith("_") and name not in WANTED) or inspect.ismodule(value):
        return False
    if isinstance(value, type) or callable(value):
        return getattr(value, "__module__", None) == module.__name__
    return name.isupper() and name != "TYPE_CHECKING"


def lines_of(full: str, value: object) -> Iterator[str]:
    """Yields the line of a name, and those of its members."""
    yield f"{full} {said_of(value)}".rstrip()
    if isinstance(value, type):
        for name in sorted(members_of(value)):
            yield f"{full}.{name} {said_of_member(value, name)}"


def said_of_member(owner: type, name: str) -> str:
    """Returns the rest of a line after the name of a member of a class."""
    value = inspect.getattr_static(owner, name, None)
    return "attribute" if name in fields_of(owner) else said_of(value, owner)


def fields_of(owner: type) -> set[str]:
    """The fields of a class of records."""
    found: set[str] = set(getattr(owner, "model_fields", ()))
    found |= set(getattr(owner, "__dataclass_fields__", ()))
    return found | set(owner.__annotations__ if issubclass(owner, dict) else ())


def said_of(value: object, owner: type | None = None) -> str:
    """Returns the rest of a line after the name. For a class's member, ``owner`` is the class."""
    if isinstance(value, enum.Enum):
        return f"= {value.value!r}"
    if isinstance(value, type):
        plain = {enum.Enum: "enum", dict: "class"}
        known = (said for base, said in plain.items() if issubclass(value, base))
        return next(known, None) or f"class {signature_of(value)}"
    if isinstance(value, classmethod | staticmethod):
        return said_of(value.__func__, None if isinstance(value, staticmethod) else owner)
    if inspect.isfunction(value):
        word = "async def" if inspect.iscoroutinefunction(value) else "def"
        return f"{word} {signature_of(value, is_method=owner is not None)}"
    if isinstance(value, SIMPLE[:-1]) and " " not in str(value):
        return f"= {value!r}"
    return "value" if owner is None else "attribute"


def members_of(found: type) -> set[str]:
    """The public methods, properties, fields and values of a class."""
    names = fields_of(found)
    if issubclass(found, enum.Enum):
        names |= set(found.__members__)
    for cls in found.__mro__:
        if cls.__module__.partition(".")[0] in OURS:
            names |= set(vars(cls)) - {"model_config"}
    return {name for name in names if not name.startswith("_") or name in WANTED}


def signature_of(function: Any, *, is_method: bool = False) -> str:
    """Returns the parameters of a call, as in a definition, without types; a default that has no
    text is an ellipsis."""
    parameters = list(inspect.signature(function).parameters.values())[is_method:]
    plain = [
        one.replace(annotation=one.empty, default=plain_default(one.default)) for one in parameters
    ]
    return str(inspect.Signature(plain))


def plain_default(value: object) -> object:
    """Returns a default as a plain value; lists, tuples and factories of lists are alike."""
    if value is inspect.Parameter.empty or value is ...:
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, list | tuple):
        return tuple(plain_default(one) for one in value)
    return value if isinstance(value, SIMPLE) else ...


if __name__ == "__main__":
    for line in describe(sys.argv[1]):
        print(line)
