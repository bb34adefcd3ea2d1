"""The parts of the keeper (../keeper.py). Every start of a sandbox waits for them, so they import
little: of the engine `base.injection`, `base.regular` and `base.removal`. The Python installation
may be replaced while a keeper runs, so everything is imported at the start."""

FIRST = "1"
"""The name of the first machine's directory."""
