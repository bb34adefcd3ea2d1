"""Frozen classes whose methods are made when first used are as those of `dataclass`."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any, cast

import pytest
from quicksand.things.frozen import frozen


@frozen
class Late:
    """With keywords only."""

    name: str
    size: int = 0
    more: Mapping[str, str] = field(default_factory=dict)
    seen: float = field(default=0.0, compare=False)

    @property
    def half(self) -> float:
        return self.size / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Early:
    """The same."""

    name: str
    size: int = 0
    more: Mapping[str, str] = field(default_factory=dict)
    seen: float = field(default=0.0, compare=False)


@frozen(kw_only=False)
class Pair:
    """With positions, and a check of its own."""

    left: int
    right: int = 1

    def __post_init__(self) -> None:
        if self.left < 0:
            raise ValueError("too little")


@frozen
class Further(Late):
    """With a field more than another."""

    last: bool = False


@frozen
class Stricter(Late):
    """With a field declared again, which has no default then."""

    size: int


@frozen(kw_only=False)
class Own:
    """With methods that are not made."""

    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.text.lower() == other.text.lower()

    def __hash__(self) -> int:
        return hash(self.text.lower())

    def __repr__(self) -> str:
        return f"<{self.text}>"


def test_it_compares_hashes_and_reads_as_a_dataclass_does() -> None:
    late, early = Late(name="a", size=3, seen=1.0), Early(name="a", size=3, seen=1.0)
    assert repr(late) == repr(early).replace("Early", "Late")
    assert late == Late(name="a", size=3, seen=2.0) != Late(name="b", size=3)
    others: list[object] = [early, "a"]
    assert late not in others
    assert hash(Pair(1, 2)) == hash(Pair(1, 2)) and {Pair(1): "x"}[Pair(1, 1)] == "x"
    assert asdict(late) == asdict(early)
    assert [(f.name, f.default, f.kw_only) for f in fields(Late)] == [
        (f.name, f.default, f.kw_only) for f in fields(Early)
    ]
    assert is_dataclass(Late) and Late.__doc__ == "With keywords only."
    assert late.half == 1.5


def test_it_is_changed_by_making_another() -> None:
    late = Late(name="a", more={"x": "y"})
    assert replace(late, size=2) == Late(name="a", size=2, more={"x": "y"})
    assert Late(name="a").more is not Late(name="a").more
    for name in ("name", "other"):
        with pytest.raises(FrozenInstanceError):
            setattr(late, name, "b")
    with pytest.raises(FrozenInstanceError):
        delattr(late, "name")
    assert not hasattr(late, "__dict__")


def test_wrong_arguments_are_refused_also_by_the_first_instance() -> None:
    late, pair = (cast("Any", cls) for cls in (Late, Pair))
    for make in (
        late,
        partial(late, "a"),
        partial(late, name="a", no_such=1),
        partial(pair, 1, 2, 3),
    ):
        with pytest.raises(TypeError):
            make()


def test_its_own_methods_stay() -> None:
    assert Own("A") == Own("a") and hash(Own("A")) == hash(Own("a")) and repr(Own("A")) == "<A>"
    with pytest.raises(ValueError, match="too little"):
        Pair(-1)
    match Pair(3, 4):
        case Pair(left, right):
            assert (left, right) == (3, 4)


def test_one_may_derive_from_another() -> None:
    further = Further(name="a", last=True)
    assert (further.name, further.size, further.last, further.half) == ("a", 0, True, 0.0)
    assert further != Late(name="a") and replace(further, name="b").name == "b"
    with pytest.raises(FrozenInstanceError):
        further.name = "b"  # type: ignore[misc]
    with pytest.raises(TypeError, match="size"):
        cast("Any", Stricter)(name="a")
    assert Stricter(name="a", size=2).half == 1.0


def test_it_can_be_copied_and_pickled() -> None:
    late = Late(name="a", size=3, more={"x": "y"})
    assert pickle.loads(pickle.dumps(late)) == copy.copy(late) == copy.deepcopy(late) == late


def test_two_threads_may_use_it_first() -> None:
    for _ in range(20):

        @frozen
        class Fresh:
            """Not used yet."""

            number: int

        start = threading.Barrier(4)
        made: list[Any] = []

        def use(cls: Any = Fresh, start: threading.Barrier = start, made: list[Any] = made) -> None:
            start.wait()
            made.append(cls(number=1))

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 4 and all(one == made[0] for one in made)


METHODS_MADE = """
import dataclasses
made = 0
create = dataclasses._create_fn
def counted(name, *args, **named):
    global made
    made += name == "__init__"
    return create(name, *args, **named)
dataclasses._create_fn = counted
from quicksand_tui.model import diffs, jobs, shown_sandboxes, shown_saves, specs
print(made)
"""


def test_importing_the_model_makes_hardly_any_methods() -> None:
    """`dataclass` takes 0.3 ms for a class; there are some thirty in these modules."""
    if sys.version_info >= (3, 13):
        pytest.skip("dataclasses makes them in another way there")
    done = subprocess.run(
        [sys.executable, "-c", METHODS_MADE], capture_output=True, check=True, text=True
    )
    assert int(done.stdout) <= 5
