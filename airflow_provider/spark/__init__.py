"""The Spark driver's side."""
