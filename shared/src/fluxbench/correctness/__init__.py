"""Whether an output is right: cases with their reference, budgets, verdicts, guards, and contents of timed calls."""
