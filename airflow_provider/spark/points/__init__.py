"""Recovery points that a script names: compute, store and read them back, partition by partition."""
