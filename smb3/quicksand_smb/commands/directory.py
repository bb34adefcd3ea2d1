"""QUERY_DIRECTORY and CHANGE_NOTIFY ([MS-SMB2] 3.3.5.18, 3.3.5.19)."""

from time import thread_time

from quicksand_smb import fscc, notify
from quicksand_smb.access_rights import READ_DATA
from quicksand_smb.connection import Reply
from quicksand_smb.conversation import Pending
from quicksand_smb.listing import Listing
from quicksand_smb.messages import query as wire
from quicksand_smb.minimal_stdlib import Final, Iterator
from quicksand_smb.names import to_wire
from quicksand_smb.patterns import matcher, short
from quicksand_smb.request import Request
from quicksand_smb.shares import MOST_SEARCHING, Handle
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store_errors import StoreError
from quicksand_smb.store_types import Entry, FileKind, Stat
from quicksand_smb.wire import encode_text, pad

LARGEST_ANSWER: Final = 256 << 10
"""The largest answer in bytes. Each entry costs a look at a file."""
SEARCH_S: Final = 2.0
"""The processor time in seconds that one request may spend on finding a name that matches."""
_END: Final = Entry("", Stat())


def query_directory(request: Request) -> Reply:
    wanted = wire.decode_directory(request.message)
    request.check_payload(wanted.most)
    handle = request.handle(wanted.file_id)
    if not handle.is_directory:
        raise Refusal(Status.INVALID_PARAMETER)
    handle.need(READ_DATA)
    if handle.listing and handle.listing.is_busy:
        raise Refusal(Status.INSUFFICIENT_RESOURCES)
    encode = fscc.ENTRY_LEVELS.get(wanted.level)
    if encode is None or (
        wanted.level == 100 and not request.connection.conversation.negotiated.has_posix
    ):
        raise Refusal(Status.INVALID_INFO_CLASS)
    listing = _listing(handle, wanted)
    most = min(wanted.most, LARGEST_ANSWER)
    above = _path_above(handle)
    output = bytearray()
    last = 0
    count = 0
    while True:
        try:
            found = listing.held or _next(request, handle, listing, above)
        except Refusal as error:
            if count and error.status == Status.INSUFFICIENT_RESOURCES:
                break  # return the found names; the next request goes on
            raise
        listing.held = None
        if found is None:
            break
        name, view = found
        record = encode(view, encode_text(name))
        start = len(output) + pad(len(output))
        if start + 4 + len(record) > most:
            listing.held = found
            break
        if count:
            output[last : last + 4] = (start - last).to_bytes(4, "little")
            output += bytes(start - len(output))
        last = start
        output += bytes(4) + record
        count += 1
        if wanted.flags & wire.SINGLE:
            break
    if not count:
        if listing.held:
            raise Refusal(Status.INFO_LENGTH_MISMATCH)
        raise Refusal(Status.NO_MORE_FILES if listing.has_told else Status.NO_SUCH_FILE)
    listing.has_told = True
    return Reply(wire.encode_output(bytes(output)))


def _listing(handle: Handle, wanted: wire.DirectoryRequest) -> Listing:
    """Return the search under way, or begin a new one. A search keeps the pattern with which it
    began."""
    listing = handle.listing
    if listing and not wanted.flags & (wire.RESTART | wire.REOPEN):
        return listing
    pattern = short(wanted.pattern)
    if listing:
        listing.end()
        if not wanted.flags & wire.REOPEN:
            pattern = pattern or listing.pattern
    if not pattern:
        raise Refusal(Status.OBJECT_NAME_INVALID)
    return handle.share.admit_listing(handle, pattern, _dots(handle, pattern))


def _dots(handle: Handle, pattern: str) -> Iterator[tuple[str, Stat]]:
    matches = matcher(pattern)
    for name in (".", ".."):
        if matches is None or matches(name):
            yield name, handle.node.stat()


def _next(
    request: Request, handle: Handle, listing: Listing, above: str | None
) -> tuple[str, fscc.View] | None:
    for name, stat in listing.dots:
        return name, handle.share.metadata.view(stat)
    entry = next(listing.entries, _END)
    if entry is None:
        entry = _search_on(request, handle, listing)
    if entry is _END or entry is None:
        return None
    view = handle.share.metadata.view(entry.stat)
    if above is not None and entry.stat.kind is FileKind.DIRECTORY:
        numbers = handle.share.directory_numbers
        view.number = numbers.number(entry.stat.inode, above + entry.name)
    return to_wire(entry.name, posix=handle.is_posix), view


def _path_above(handle: Handle) -> str | None:
    """Return the prefix of the paths of a listing, or None if the client needs no numbers by path.
    Paths may be long, and names many."""
    names = handle.share.store.known_name(handle.node) if handle.is_posix else None
    return None if names is None else "".join([f"{name}/" for name in names])


def _search_on(request: Request, handle: Handle, listing: Listing) -> Entry | None:
    """Search for the next name that matches, without the lock, so that other requests are served
    meanwhile."""
    share = handle.share
    if share.searching >= MOST_SEARCHING:
        raise Refusal(Status.INSUFFICIENT_RESOURCES)
    share.searching += 1
    listing.is_busy = True
    entry: Entry | None = None
    try:
        with request.unlocked():
            until = thread_time() + SEARCH_S
            while entry is None and not listing.is_over and thread_time() < until:
                entry = next(listing.entries, _END)
    finally:
        share.searching -= 1
        listing.is_busy = False
        if listing.is_over:
            listing.end()
    if listing.is_over:
        raise Refusal(Status.FILE_CLOSED)
    if entry is None:
        raise Refusal(Status.INSUFFICIENT_RESOURCES)
    return entry


def change_notify(request: Request) -> Reply | Pending:
    wanted = wire.decode_notify(request.message)
    request.check_payload(wanted.most)
    handle = request.handle(wanted.file_id)
    if not handle.is_directory:
        raise Refusal(Status.INVALID_PARAMETER)
    handle.need(READ_DATA)
    if not request.is_last:
        raise Refusal(Status.INTERNAL_ERROR)
    if handle.file.to_delete or handle.file.is_removed:
        raise Refusal(Status.DELETE_PENDING)  # nothing can change in it any more
    if handle.watch is None:
        if len(handle.share.watches) >= notify.MOST_WATCHES:
            raise Refusal(Status.INSUFFICIENT_RESOURCES)
        handle.watch = notify.Watch(
            handle.names(),
            wanted.wanted,
            handle.share.ledger,
            recursive=wanted.recursive,
            most=wanted.most,
        )
        handle.share.watches.append(handle.watch)
    watch = handle.watch

    def answer(status: Status, data: bytes) -> None:
        pending.finish(status, wire.encode_output(data))

    def cancel(status: Status) -> None:
        watch.drop(answer)
        pending.finish(status, wire.encode_output(b""))

    pending = request.defer(cancel, begin=watch.answer)
    watch.ask(wanted.most, answer)
    return pending


def is_empty(handle: Handle) -> bool:
    """Tell whether a directory has no names. Raises StoreError."""
    entries = handle.node.entries("*")
    try:
        return next(entries, None) is None
    except StoreError:
        raise
    finally:
        close = getattr(entries, "close", None)
        if close:
            close()
