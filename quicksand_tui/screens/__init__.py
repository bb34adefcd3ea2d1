"""The screens of the app, each with its keys.

Imports `widgets`, `views`, `forms` and `jobs`; `ui.dialogs` opens the screens.
"""
