"""What the generated cases are about, a module for each subject; each has ``FAMILIES``: name to maker of a case."""
