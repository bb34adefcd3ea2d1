"""Carries connections from a guest to the host: here no guest can make any."""

from quicksand_core._absent import refusing

__getattr__ = refusing(__name__, main="nothing is forwarded from a guest to the host")
