"""Widgets: one per file. They are shown snapshots and send messages; they know no engine."""
