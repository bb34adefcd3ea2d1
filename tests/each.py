"""`each`: the cases of a test in one test, which names those that failed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from _pytest.mark import ParameterSet

Test = Callable[..., Any]
Names = Callable[[Any], object] | Iterable[object] | None


def each(
    names: str | Sequence[str],
    values: Iterable[object],
    *,
    ids: Names = None,
) -> Callable[[Test], Test]:
    """Does what `pytest.mark.parametrize` does, within one test: all values are tried, and those
    with which it failed are named. It is for tests that take a moment and nothing from a fixture
    but what all values may share; `tmp_path` is another one for each."""
    words = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    cases = [*_cases(words, values, ids)]

    def loop(test: Test) -> Test:
        @functools.wraps(test)
        def tried(**given: Any) -> None:
            failed = []
            for number, (name, case) in enumerate(cases):
                try:
                    test(**_own_directory(given, number), **case)
                except Exception as error:  # noqa: BLE001
                    error.add_note(f"with {', '.join(words)}: {name}")
                    failed.append(error)
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(cases)} cases failed", failed)

        known = inspect.signature(test)
        left = [one for one in known.parameters.values() if one.name not in words]
        tried.__signature__ = known.replace(parameters=left)  # type: ignore[attr-defined]
        return tried

    return loop


def _cases(
    words: list[str], values: Iterable[object], ids: Names
) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ids if callable(ids) else repr
    given = iter(()) if ids is None or callable(ids) else iter(ids)
    for one in values:
        row = ParameterSet.extract_from(one, force_tuple=len(words) == 1)
        assert not row.marks, "a mark is for all cases: use pytest.mark.parametrize"
        assert len(row.values) == len(words), (words, row.values)
        told = ", ".join(str(name(value)) for value in row.values)
        yield str(row.id or next(given, told)), dict(zip(words, row.values, strict=True))


def _own_directory(given: dict[str, Any], number: int) -> dict[str, Any]:
    if "tmp_path" not in given:
        return given
    (own := given["tmp_path"] / str(number)).mkdir()
    return {**given, "tmp_path": own}
