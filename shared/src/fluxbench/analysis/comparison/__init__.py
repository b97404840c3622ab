"""Results before and results after: how each time changed, and whether the device changed or what runs on it."""
