"""Sandboxes of other machines, without any machine."""
