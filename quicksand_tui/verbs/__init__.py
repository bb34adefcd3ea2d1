"""The action of each verb, once: its command and its job carry out the same record.

Imports `model`. The engine is imported when a verb is carried out, so that neither `--help` nor the
first paint waits for it.
"""
