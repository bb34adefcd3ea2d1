"""Forms: their fields, suggestions and checks, and the specs that they result in.

Imports `model`, `views`, `actions` and `home`; of the engine, the records of machine options and
checks of names.
"""
