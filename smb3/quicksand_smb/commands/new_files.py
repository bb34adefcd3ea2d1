"""Attributes, access rights and disk space of files that are made or overwritten."""

from quicksand_smb import access, fscc, streams
from quicksand_smb.commands.open_plan import Plan
from quicksand_smb.messages import create as wire
from quicksand_smb.shares import Share
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store import Node
from quicksand_smb.store_errors import Reason, StoreError
from quicksand_smb.store_types import FileKind, Stat


def protect_new(share: Share, plan: Plan, node: Node, stat: Stat) -> None:
    """Set the access rights of a new file to those that the client sends, or else to those it
    inherits from its directory."""
    given = None if plan.is_posix else plan.wanted.contexts.get(wire.SECURITY)
    if not given and not share.metadata.has_security:
        return
    if given:
        said = access.decode(given)
        mode = access.mode_of(said)
        if mode is not None:
            node.set_mode(mode)
            return
        which = access.OWNER | access.GROUP | (access.DACL if said.control & 0x4 else 0)
        share.metadata.protect(stat, access.changed(access.of_file(stat), said, which))
    elif plan.names and (above := share.metadata.security_of(share.store.look(plan.names[:-1]))):
        handed = access.inherited(above, stat)
        if handed:
            share.metadata.protect(stat, handed)


def set_attributes(node: Node, given: bytes) -> None:
    """Set the extended attributes of a create context ([MS-SMB2] 2.2.13.2.1)."""
    for name, value in fscc.decode_attributes(memoryview(given)):
        node.set_attribute(name, value)


def finish_new(share: Share, plan: Plan, node: Node, stat: Stat) -> None:
    """Remember the attributes of a new file that Unix cannot store."""
    if not plan.stream:
        protect_new(share, plan, node, stat)
    if plan.is_posix or plan.stream:
        return
    wanted = plan.wanted
    if wanted.attributes & fscc.READ_ONLY and wanted.options & wire.DELETE_ON_CLOSE:
        share.store.remove(plan.names, directory=node.kind is FileKind.DIRECTORY, same_as=stat)
        raise Refusal(Status.CANNOT_DELETE)
    kept = wanted.attributes & fscc.KEPT & ~fscc.SPARSE
    kept |= fscc.ARCHIVE if node.kind is FileKind.FILE else 0
    if kept:
        share.metadata.remember(stat).attributes = kept


def empty_file(share: Share, plan: Plan, node: Node, stat: Stat) -> None:
    """Empty a file that is overwritten, and give it the attributes of a new file."""
    node.resize(0)
    if plan.is_posix or plan.stream:
        return
    streams.remove_all(node)
    wanted = plan.wanted.attributes
    share.metadata.remember(stat).attributes = wanted & fscc.KEPT & ~fscc.SPARSE | fscc.ARCHIVE
    if wanted & fscc.READ_ONLY:
        node.set_mode(stat.mode & ~0o222)


def allocate_for(node: Node, wanted: bytes) -> None:
    """Reserve the disk space that a create context asks for ([MS-SMB2] 2.2.13.2.2). The request is
    a hint, so a file system that cannot reserve space loses nothing."""
    if len(wanted) < 8:
        return
    try:
        node.allocate(0, int.from_bytes(wanted[:8], "little"), keep_size=True)
    except StoreError as error:
        if error.reason not in (Reason.UNSUPPORTED, Reason.DENIED, Reason.INVALID):
            raise
