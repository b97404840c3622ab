"""Typed tables, figures and sentences of a page, from records alone."""
