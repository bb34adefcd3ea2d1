"""Widgets that Textual lacks, or that are faster than Textual's.

Imports `model`, `views`, `actions`, `forms` and `kit`, but no screen and no engine, so that any
screen can use them.
"""
