"""Amazon S3 and stores with its API. Only this package sends requests to them."""
