"""The commands: one module for each group of verbs, and modules that these share.

Imports the engine and `model`, never Textual, so that a command starts at once.
"""
