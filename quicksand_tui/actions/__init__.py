"""Actions: a record of each, the reasons why it is not possible now, and its `:` line.

Imports `model`, `views` and `verbs` only, so that keys, footer, help, palette and the `:` line can
derive from the records without knowing how an action is carried out.
"""
