"""Intervals of medians and ratios, and what changed between two measurements."""
