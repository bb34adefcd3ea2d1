"""Methods and properties of an object that are those of one of its parts, with the part's
signatures and documentation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, Generic, Never, ParamSpec, Protocol, TypeVar, cast, overload

Whole = TypeVar("Whole")
Part = TypeVar("Part")
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Attribute(Protocol[R_co]):
    """A property as type checkers see it: with the type of its value, and read-only."""

    @overload
    def __get__(self, whole: None, owner: type[Any]) -> Attribute[R_co]: ...

    @overload
    def __get__(self, whole: object, owner: type[Any]) -> R_co: ...

    def __set__(self, whole: Any, value: Never) -> None: ...


class Delegation(Generic[Whole, Part]):
    """Makes methods of ``Whole`` out of methods of its part::

        to_engine: Delegation[Car, Engine] = Delegation(lambda car: car.engine)

        class Car:
            start = to_engine(Engine.start)

    They are functions like any others: a subclass may override them, `help` shows the documentation
    of the part's method, and overloads, parameters and results are checked as the part's are. The
    call goes to the part's method of that name, whatever its class.
    """

    def __init__(self, part: Callable[[Whole], Part]) -> None:
        """``part`` finds the part, at each call."""
        self._part = part

    def __call__(
        self, method: Callable[Concatenate[Part, P], R]
    ) -> Callable[Concatenate[Whole, P], R]:
        part, name = self._part, method.__name__

        def call(whole: Whole, *args: Any, **kwargs: Any) -> Any:
            return getattr(part(whole), name)(*args, **kwargs)

        async def await_call(whole: Whole, *args: Any, **kwargs: Any) -> Any:
            return await call(whole, *args, **kwargs)

        made = await_call if inspect.iscoroutinefunction(method) else call
        return cast("Callable[Concatenate[Whole, P], R]", functools.wraps(method)(made))

    @overload
    def attribute(self, found: property) -> Attribute[Any]: ...

    @overload
    def attribute(self, found: Callable[[Part], R]) -> Attribute[R]: ...

    def attribute(self, found: property | Callable[[Part], R]) -> Attribute[Any]:
        """Makes a property of ``Whole`` from a property of its part, or from a method without
        parameters."""
        part, is_property = self._part, isinstance(found, property)
        get = cast("Callable[[Part], R]", found.fget if isinstance(found, property) else found)
        name = get.__name__

        @functools.wraps(get)
        def find(whole: Whole) -> R:
            value = getattr(part(whole), name)
            return cast("R", value if is_property else value())

        return cast("Attribute[Any]", property(find))
