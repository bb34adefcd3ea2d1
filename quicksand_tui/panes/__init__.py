"""Terminals of guests within the app, several beside each other."""
