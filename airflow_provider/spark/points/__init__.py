"""Recovery points that a script names: computed, stored, read back, partition by partition."""
