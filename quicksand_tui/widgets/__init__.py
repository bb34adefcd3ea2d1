"""Widgets that Textual lacks, or that are faster than Textual's.

Imports `model`, `views`, `actions`, `forms` and `ui.textual_private`, but no screen and no engine,
so that any screen can use them.
"""
