"""Jobs: running operations with progress, cancellation and outcome.

Imports `model`, `verbs`, `actions` and the protocol of `door`, never Textual, so that jobs are
tested without a screen.
"""
