"""What recovery costs and what it saves, measured on TPC-H data. ``python -m benchmarks --help``."""
