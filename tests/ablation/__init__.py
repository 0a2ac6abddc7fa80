"""Each mechanism of the seeds switched off, and the tests that fail without it: ``python -m tests.ablation``."""
