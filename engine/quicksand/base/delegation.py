"""Methods of an object that one of its parts carries out, with the signature and the documentation
that they have there."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

Whole = TypeVar("Whole")
Part = TypeVar("Part")
P = ParamSpec("P")
R = TypeVar("R")


class Delegation(Generic[Whole, Part]):
    """Makes methods of ``Whole`` out of methods of its part::

        to_engine: Delegation[Car, Engine] = Delegation(lambda car: car.engine)

        class Car:
            start = to_engine(Engine.start)

    They are functions like any others: a subclass may override them, `help` shows what the part's
    method says, and overloads, parameters and results are checked as the part's are.
    """

    def __init__(self, part: Callable[[Whole], Part]) -> None:
        """``part`` finds the part, at each call."""
        self._part = part

    def __call__(
        self, method: Callable[Concatenate[Part, P], R]
    ) -> Callable[Concatenate[Whole, P], R]:
        part = self._part
        call: Callable[..., Any]
        if inspect.iscoroutinefunction(method):

            @functools.wraps(method)
            async def call(whole: Whole, *args: Any, **kwargs: Any) -> Any:
                return await method(part(whole), *args, **kwargs)
        else:

            @functools.wraps(method)
            def call(whole: Whole, *args: Any, **kwargs: Any) -> Any:
                return method(part(whole), *args, **kwargs)

        return cast("Callable[Concatenate[Whole, P], R]", call)
