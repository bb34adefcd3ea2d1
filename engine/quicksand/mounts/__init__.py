"""Directories of the host in a guest: each is served by a process of its own (quicksand_smb), whose
stream leads through QEMU to the guest's own SMB client.

`records.mount` defines a mount; here it is checked, served, mounted by the guest, and known. The
methods of a `Sandbox` for its mounts are in `life.sandbox_mounts`.
"""
