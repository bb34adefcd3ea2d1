"""Exports and imports: a save, or a sandbox with its checkpoints, as one file
(docs/internals/bundles.md)."""
