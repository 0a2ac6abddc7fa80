"""What a script writes outside the event store: only by the owner of the job, and once per job."""
