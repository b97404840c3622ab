"""Anyone's table of times or rates, row by row: which of them no such device can reach. No device, and no torch."""
