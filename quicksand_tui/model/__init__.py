"""Frozen values that describe what the app shows.

This room imports nothing else of the app, neither the engine nor Textual, so that every other
room may build on it.
"""
