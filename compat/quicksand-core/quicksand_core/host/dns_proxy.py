"""Answers a guest's questions for names by the host's resolver: not a part of this engine."""

from quicksand_core._absent import refusing

__getattr__ = refusing(__name__, HostDnsProxy="QEMU's own resolver answers guests")
