"""Tests of the demo and of the example DAGs."""
