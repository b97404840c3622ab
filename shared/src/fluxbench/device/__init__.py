"""Which device this is, and the most that it can do."""
