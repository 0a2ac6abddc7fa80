"""The user's own module."""

from rates import RATE, Table


def price(amount):
    """Price of an order."""
    return amount * RATE + Table.base
