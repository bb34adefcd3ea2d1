"""Directories of the host in a guest: each is served by a process of its own (quicksand_smb), whose
stream leads through QEMU to the guest's own SMB client.

`records.mount` says what a mount is; here it is checked, served, mounted by the guest, and known.
What a `Sandbox` does with its mounts is in `life.mounts`.
"""
