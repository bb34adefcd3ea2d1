"""The app's way to the engine, which runs on its own event loop.

Imports `model`, `verbs`, what a pane needs of a terminal, and `quicksand`; of the other rooms only
`cli`, `forms` and `verbs` import `quicksand`, so that nothing the engine does delays a key press.
"""
