"""The recovery core: events, execution graph, replay, classification, takeover decisions.

Pure: standard library only, no I/O, no clock of its own. Tests need only plain values.
"""
