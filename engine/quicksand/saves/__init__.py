"""Saves: disks that outlive their sandbox (format 6 of the specification, with additions)."""
