"""What a script writes outside of its event store: by its owner only, and once per job."""
