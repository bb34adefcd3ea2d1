"""Spares: machines that have already started from a template and wait, paused, for the next start.

A spare is a sandbox without a name, and so without ``sandbox.json``: no list shows it. It has
everything that a sandbox has from the beginning (id, addresses, keys, token, disk, QEMU, keeper),
and ``spare.json`` instead of the record. The start that takes it over gives it a record.

========== =======================================================================
spare      what a spare is: its record, its key, finding spares
fitting    which spares a start can take
claiming   one start takes it over from its keeper, all others get nothing
handover   from a claimed spare to a sandbox whose agent has answered
making     making one: it goes through the hand-over, then its keeper gets it
next_start when one is made: in the background (maker), some seconds after a start
orders     how many the user wants to have ready
naming     what such a machine is called, and which command orders it
room       whether the host has memory for one
stock      what is missing is made, what no longer fits is ended
ending     ending spares that nobody will take
========== =======================================================================

Linux only: elsewhere nothing ends a spare whose keeper was killed.
"""
