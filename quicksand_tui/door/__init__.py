"""The only way to the engine, which runs on its own event loop.

Imports `model`, `forms`, `panes.content` and `quicksand`; of the other rooms only `cli` and `forms`
import `quicksand`, so that nothing the engine does delays a key press.
"""
