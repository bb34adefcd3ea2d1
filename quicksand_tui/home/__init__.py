"""The user's files: the config that the user writes, and the app's memory.

Imports `model`, `actions` and `views`. The engine's files belong to the engine.
"""
