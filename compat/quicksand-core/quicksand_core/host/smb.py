"""Servers of the host's directories, which each mount has for itself."""

from quicksand_core._absent import refusing

_MOUNT = "use Sandbox.mount, or Sandbox(mounts=[…])"

__getattr__ = refusing(
    __name__,
    SMBServer=_MOUNT,
    QuicksandSMBServer=_MOUNT,
    QuicksandSMBTCPServer=_MOUNT,
    WindowsSMBServer=_MOUNT,
    create_smb_server=_MOUNT,
)
