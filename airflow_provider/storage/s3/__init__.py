"""Amazon S3 and what speaks its API. The only place that sends requests."""
