"""Ends a sandbox's processes with their owner: here the keeper of each sandbox does."""

from quicksand_core._absent import refusing

_KEEPER = "each sandbox has a keeper, which ends it with its owner"

__getattr__ = refusing(__name__, main=_KEEPER, GRACEFUL_TIMEOUT=_KEEPER)
