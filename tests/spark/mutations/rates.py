"""A module that only the user's own module imports."""

RATE = 0.5


class Table:
    base = 2
