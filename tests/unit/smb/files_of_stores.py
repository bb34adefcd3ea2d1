"""Files in a store, made and read by tests."""

from __future__ import annotations

from quicksand_smb.node import Node
from quicksand_smb.store import Action, Disposition, OpenOptions, Reason, Store, StoreError

RW = OpenOptions(read=True, write=True)


NEW = OpenOptions(read=True, write=True, disposition=Disposition.CREATE, mode=0o640)


class Raises:
    """The reason of a StoreError that must come."""

    def __init__(self, *reasons: Reason) -> None:
        self.reasons = reasons

    def __enter__(self) -> Raises:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> bool:
        assert isinstance(error, StoreError), f"not refused: {error!r}"
        assert error.reason in self.reasons, error.reason
        self.error = error
        return True


def make(store: Store, *names: str, data: bytes = b"") -> Node:
    node, action = store.open(names, NEW)
    assert action is Action.CREATED
    if data:
        assert node.write(memoryview(data), 0) == len(data)
    return node


def make_dir(store: Store, *names: str) -> None:
    wish = OpenOptions(directory=True, disposition=Disposition.CREATE, mode=0o755)
    store.open(names, wish)[0].close()


def content(node: Node, count: int = 100, offset: int = 0) -> bytes:
    buffer = bytearray(count)
    return bytes(buffer[: node.read_into(memoryview(buffer), offset)])


def listed(store: Store, pattern: str = "*", names: tuple[str, ...] = ()) -> list[str]:
    node, _ = store.open(names, OpenOptions(read=True))
    found = sorted(entry.name for entry in node.entries(pattern))
    node.close()
    return found
