"""Map outputs as files of an executor, and as objects of the partition store; cached partitions as such objects."""
