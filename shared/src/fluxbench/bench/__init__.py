"""What a measuring cell calls: gate on hardware, run workers, and turn what they saw into records."""

from fluxbench.bench.measuring import ceilings, measure

__all__ = ["ceilings", "measure"]
