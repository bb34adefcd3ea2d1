"""The parts of the keeper (../keeper.py). It runs as a script, so they import nothing else of the
engine; they import little, and late, since every start of a sandbox waits for them."""

FIRST = "1"
"""The name of the first machine's directory."""
