"""What is certain to be the same: plans, functions, steps, draws, rows of the driver."""
