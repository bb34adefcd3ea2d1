"""Terminals of guests beside their panes (`quicksand_panes`): watched on the wall, awaited, and as
their last lines.

Imports `model` and Textual.
"""
