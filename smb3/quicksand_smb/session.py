"""Sessions, their trees, and the handles that are opened in them."""

from quicksand_smb.ledger import TREE_COST, Ledger
from quicksand_smb.minimal_stdlib import TYPE_CHECKING, Enum, Final, Protocol, auto
from quicksand_smb.shares import Handle, Share, Tree
from quicksand_smb.signing import Signer
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store_errors import StoreError

if TYPE_CHECKING:
    from quicksand_smb.ntlm import Login

MOST_TREES: Final = 1024
MOST_HANDLES: Final = 16384
"""The most handles of one session. A store also limits those of all sessions."""


class Stage(Enum):
    """The stage of a session's login."""

    LOGGING_IN = auto()
    """Only SESSION_SETUP is allowed."""
    VALID = auto()
    ENDED = auto()


class Owner(Protocol):
    """The part of a connection that its sessions use."""

    @property
    def client_guid(self) -> bytes: ...

    @property
    def deletes_at_once(self) -> bool: ...

    def give_up(self, handle: Handle) -> None: ...

    def give_up_tree(self, tree: Tree) -> None: ...

    def forget(self, session: "Session") -> None: ...


class Session:
    def __init__(
        self, session_id: int, connection: Owner, ledger: Ledger, handshake: bytes
    ) -> None:
        self.id = session_id
        self._ledger = ledger
        self.connection = connection
        self.stage = Stage.LOGGING_IN
        self.login: Login | None = None
        self.user_flags = 0
        """The flags of the SESSION_SETUP response: guest, anonymous."""
        self.signer: Signer | None = None
        """Signs messages. None before the login succeeds, and for guests."""
        self.handshake = handshake
        """The hash of the messages on which the keys of dialect 3.1.1 depend."""
        self.trees: dict[int, Tree] = {}
        self.handles: dict[int, Handle] = {}
        self._next_tree = 1
        self._opened: dict[int, int] = {}
        """The number of handles of each process of the client."""

    def accept(self, signer: Signer | None, user_flags: int = 0) -> None:
        """Make the session valid after a successful login."""
        self.stage = Stage.VALID
        self.signer = signer
        self.user_flags = user_flags

    def connect(self, share: Share | None) -> Tree:
        if len(self.trees) >= MOST_TREES:
            raise Refusal(Status.INSUFFICIENT_RESOURCES)
        self._ledger.take(TREE_COST)
        tree = Tree(self._next_tree, share)
        self._next_tree += 1
        self.trees[tree.id] = tree
        return tree

    def find_handle(self, file_id: tuple[int, int], tree: Tree) -> Handle:
        """Return a handle by its id. Only the tree in which it was opened finds it."""
        handle = self.handles.get(file_id[1])
        if handle is None or file_id[0] != file_id[1] or handle.tree is not tree:
            raise Refusal(Status.FILE_CLOSED)
        return handle

    def admit(self, process: int, share: Share) -> None:
        """Check that another file may be opened. Raises Refusal if there are too many. When three
        quarters are taken, processes with the most open files get none of the rest."""
        most = min(MOST_HANDLES, share.store.limits.nodes)
        there = len(self.handles)
        if there < most - most // 4 and not self._ledger.is_scarce:
            return
        if there >= most or self._opened.get(process, 0) >= most // 16:
            raise Refusal(Status.TOO_MANY_OPENED_FILES)

    def add_handle(self, handle: Handle) -> None:
        self.handles[handle.id] = handle
        self._opened[handle.process] = self._opened.get(handle.process, 0) + 1

    def close_handle(self, handle: Handle) -> None:
        if self.handles.pop(handle.id, None) is None:
            return
        self._opened[handle.process] -= 1
        if not self._opened[handle.process]:
            del self._opened[handle.process]
        connection = self.connection
        connection.give_up(handle)
        if handle.watch:
            handle.share.watches.remove(handle.watch)
            handle.watch.end(Status.NOTIFY_CLEANUP)
        handle.share.remove(handle, deletes_at_once=connection.deletes_at_once)

    def disconnect(self, tree: Tree) -> None:
        if self.trees.pop(tree.id, None):
            self._ledger.give_back(TREE_COST)
        self.connection.give_up_tree(tree)
        self._close_all([one for one in self.handles.values() if one.tree is tree])

    def end(self) -> None:
        self.stage = Stage.ENDED
        trees, self.trees = list(self.trees.values()), {}
        self._ledger.give_back(TREE_COST * len(trees))
        for tree in trees:
            self.connection.give_up_tree(tree)
        self._close_all(list(self.handles.values()))

    def _close_all(self, handles: list[Handle]) -> None:
        """Close handles for which no request waits. A file that cannot be removed stays on the
        host."""
        for handle in handles:
            try:
                self.close_handle(handle)
            except StoreError:
                continue
