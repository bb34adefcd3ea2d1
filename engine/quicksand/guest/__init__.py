"""The guest, from within: the agent's wire and sessions (`agent`), and what is asked of it:
commands, shells, files, its clock, its network and what it must be before others start from it.

Nothing here starts a machine or knows which hypervisor runs it.
"""
