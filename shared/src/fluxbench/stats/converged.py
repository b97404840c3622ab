"""When a time is known well enough: half its 95% interval, as a share."""

from __future__ import annotations

RATIO_WITHIN, MEDIAN_WITHIN = 0.003, 0.005  # half the 95% intervals of a burst that has converged, as shares
# Of a sustained mean: where its ratio to the reference is CLOSE or less, so that it may decide a rank, and elsewhere.
SUSTAINED_WITHIN, SLOWER_WITHIN, CLOSE = 0.005, 0.015, 1.05


def sustained_within(ratio: float) -> float:
    """Return half the 95% interval, a share, at which a sustained mean with this ratio has converged."""
    return SUSTAINED_WITHIN if ratio <= CLOSE else SLOWER_WITHIN
