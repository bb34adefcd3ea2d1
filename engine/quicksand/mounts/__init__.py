"""Directories of the host in a guest: each is served by a process of its own (quicksand_smb), whose
stream leads through QEMU to the guest's own SMB client."""
