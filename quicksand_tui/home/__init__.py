"""The user's files: the config that the user writes, and what the app remembers.

Imports `model`, `actions` and `views`. The engine's files belong to the engine.
"""
