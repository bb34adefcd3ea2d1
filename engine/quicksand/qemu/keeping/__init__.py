"""The parts of the keeper, which is run as a script (../keeper.py) and so knows nothing else of the
engine. They import little, and late: every start of a sandbox waits for them."""

FIRST = "1"
"""The directory of the first machine."""
