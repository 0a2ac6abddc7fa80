"""The command line, ``spark-recovery``; one module per command."""
