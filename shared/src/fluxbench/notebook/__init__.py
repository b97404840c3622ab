"""Building and publishing a notebook, on uvnote's own parser, executor and page generator."""
