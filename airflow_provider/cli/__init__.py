"""The command line, ``spark-recovery``; each command in a module of its own."""
