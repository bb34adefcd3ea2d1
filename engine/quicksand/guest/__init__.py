"""The guest, from within: the agent's wire and sessions (`agent`), and its services: commands,
shells, files, its clock, its network, and its fitness to be a template.

Nothing here starts a machine or knows which hypervisor runs it.
"""
