"""A module that is imported inside a function only."""


def discount(amount):
    return amount * 0.25
