"""Screens: one per file, the style sheet beside it."""
