"""Saves, and sandboxes with their checkpoints, as one file (docs/internals/bundles.md)."""
