"""One fresh process of the measured environment: a request in, events out. Imports torch, and no msgspec."""
