"""Forms: their fields, suggestions and checks, and the calls of verbs that they ask for.

Imports `model`, `views`, `verbs`, `actions` and `home`; of the engine, the records of machine
options and checks of names.
"""
