"""Saves: copies of a sandbox's disk that outlive it (format 6 of the specification, with
additions). A store is a directory of saves.

A name is looked up first in the workspace of the current directory (``.quicksand/sandboxes``), then
among the user's own saves. All errors are QuicksandErrors.
"""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from quicksand.saves.public import delete as delete
    from quicksand.saves.public import export as export
    from quicksand.saves.public import import_ as import_
    from quicksand.saves.public import list as list  # noqa: A004 - saves.list()
    from quicksand.saves.public import restore as restore
    from quicksand.saves.public import verify as verify
else:
    __getattr__, __dir__ = on_demand()
