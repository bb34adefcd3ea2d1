"""The parts of which the running app is made: the base classes of its screens, its keys and the
widgets that get them, messages to the user, the memory between runs, and what is known of the
terminal.

Imports `home`, `actions` and `views`. `outline` does its work before Textual is imported, so it
imports next to nothing.
"""
