"""The things that a user has, as frozen records: what each is, and how it is shown.

The engine returns them; commands, lists, details and other machines read them. They need nothing
else of the engine, so that the app can show them before it has loaded any of it.
"""
