"""What lies outside of the package: an operation and its study, as somebody else may add them."""
