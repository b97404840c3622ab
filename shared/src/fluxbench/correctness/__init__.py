"""Whether an output is right: cases with their reference, budgets, verdicts, guards and perturbed inputs."""
