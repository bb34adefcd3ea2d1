"""The commands: a room for each family of verbs, and what these share.

Imports the engine and `model`, never Textual, so that a command starts at once.
"""
