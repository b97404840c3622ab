"""Many targets at once: a job for each notebook on each target, through submitit on Slurm or on this machine."""
