"""Whether records follow from the samples published beside them."""
