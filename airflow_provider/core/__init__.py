"""The recovery core: events, execution graph, replay, classification, take-over decisions.

Pure: standard library only, no I/O, no clock of its own. Everything here can be tested with plain values.
"""
