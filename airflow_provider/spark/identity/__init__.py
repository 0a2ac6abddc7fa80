"""Identities: what is certain to be the same, for plans, functions, steps, random draws and rows of the driver."""
