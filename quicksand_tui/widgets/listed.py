"""The rows of a list, made anew only when they have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quicksand_tui.model.world import World

T = TypeVar("T")


class Listed(Generic[T]):
    """Makes the sequence for a `Browser`, which compares objects to see whether it has changed."""

    def __init__(
        self,
        make: Callable[[World], Sequence[T]],
        of: Callable[[World], tuple[object, ...]],
    ) -> None:
        """``of`` returns the objects that the sequence is made from."""
        self._make = make
        self._of = of
        self._before: tuple[object, ...] = ()
        self._made: Sequence[T] = ()

    def of(self, world: World) -> Sequence[T]:
        """Returns the same object as before if it is made from the same objects."""
        now = self._of(world)
        if len(now) != len(self._before) or any(
            one is not before for one, before in zip(now, self._before, strict=True)
        ):
            self._before = now
            self._made = self._make(world)
        return self._made
