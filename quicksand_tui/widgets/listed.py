"""What a list shows, made anew only when it has changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from quicksand_tui.model.world import World

T = TypeVar("T")


class Listed(Generic[T]):
    """Makes the sequence for a `Browser`, which tells by the object whether it is another one."""

    def __init__(
        self,
        make: Callable[[World], Sequence[T]],
        of: Callable[[World], tuple[object, ...]],
    ) -> None:
        """``of`` returns what the sequence is made of."""
        self._make = make
        self._of = of
        self._before: tuple[object, ...] = ()
        self._made: Sequence[T] = ()

    def of(self, world: World) -> Sequence[T]:
        """Returns the same object as before if it is made of the same objects."""
        now = self._of(world)
        if len(now) != len(self._before) or any(
            one is not before for one, before in zip(now, self._before, strict=True)
        ):
            self._before = now
            self._made = self._make(world)
        return self._made
