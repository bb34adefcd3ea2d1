"""Starting: booting, or going on from a template (a machine that was booted once) or a spare (one
that waits already), and making both in the background.

What is made here is used often, so it is checked before it is committed: clock, agent, network,
entropy, memory (`template_maker`).
"""
