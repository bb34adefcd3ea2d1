"""`each`: the cases of a test in one test, which names those that failed."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import pytest
from _pytest.mark import ParameterSet

Test = Callable[..., Any]
Names = Callable[[Any], object] | Iterable[object] | None
NAME_MAX = 2000
"""The most characters of a case's name in an error."""


def each(
    names: str | Sequence[str],
    values: Iterable[object] | Callable[[], Iterable[object]],
    *,
    ids: Names = None,
) -> Callable[[Test], Test]:
    """Does what `pytest.mark.parametrize` does, within one test: all values are tried, and those
    with which it failed are named. It is for tests that take a moment and nothing from a fixture
    but what all values may share; `tmp_path`, `monkeypatch` and `capsys` are new for each. Values
    of megabytes are made by a function as the test runs: a fork takes longer the more there is."""
    words = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    made: Callable[[], Iterable[object]]
    if inspect.isfunction(values):
        made = values
    else:
        made = partial(iter, [*cast("Iterable[object]", values)])
        for _ in _cases(words, made(), ids):
            pass  # what is wrong with one is told as the file is read

    def loop(test: Test) -> Test:
        @functools.wraps(test)
        def tried(**given: Any) -> None:
            failed: list[Exception] = []
            number = -1
            for number, (name, case) in enumerate(_cases(words, made(), ids)):
                with _noted(failed, words, name), _own(given, number) as own:
                    test(**own, **case)
            _tell(failed, number + 1)

        @functools.wraps(test)
        async def tried_async(**given: Any) -> None:
            failed: list[Exception] = []
            number = -1
            for number, (name, case) in enumerate(_cases(words, made(), ids)):
                with _noted(failed, words, name), _own(given, number) as own:
                    await test(**own, **case)
            _tell(failed, number + 1)

        whole: Any = tried_async if inspect.iscoroutinefunction(test) else tried
        known = inspect.signature(test)
        left = [one for one in known.parameters.values() if one.name not in words]
        whole.__signature__ = known.replace(parameters=left)
        return cast("Test", whole)

    return loop


@contextlib.contextmanager
def trying(what: object) -> Iterator[None]:
    """Adds to an error what was tried: for values that are tried one behind the other in the same
    app."""
    try:
        yield
    except Exception as error:
        error.add_note(f"with {what}")
        raise


@contextlib.contextmanager
def _noted(failed: list[Exception], words: list[str], name: Callable[[], str]) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001
        error.add_note(f"with {', '.join(words)}: {name()}")
        failed.append(error)


def _tell(failed: list[Exception], cases: int) -> None:
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {cases} cases failed", failed)


@contextlib.contextmanager
def _own(given: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """Fixtures of one case: its own directory, its own patches, and nothing printed before."""
    own = dict(given)
    if "tmp_path" in given:
        own["tmp_path"] = given["tmp_path"] / str(number)
        own["tmp_path"].mkdir()
    if "capsys" in given:
        given["capsys"].readouterr()
    with pytest.MonkeyPatch.context() as patch:
        if "monkeypatch" in given:
            own["monkeypatch"] = patch
        yield own


def _cases(
    words: list[str], values: Iterable[object], ids: Names
) -> Iterator[tuple[Callable[[], str], dict[str, Any]]]:
    name = ids if callable(ids) else repr
    given = iter(()) if ids is None or callable(ids) else iter(ids)
    for one in values:
        row = ParameterSet.extract_from(one, force_tuple=len(words) == 1)
        assert not row.marks, "a mark is for all cases: use pytest.mark.parametrize"
        assert len(row.values) == len(words), (words, row.values)
        known = row.id or next(given, None)
        yield partial(_name, known, name, row.values), dict(zip(words, row.values, strict=True))


def _name(known: object, name: Callable[[Any], object], values: Sequence[object]) -> str:
    told = known or ", ".join(str(name(value)) for value in values)
    return str(told)[:NAME_MAX]
