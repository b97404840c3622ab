"""Records, all that crosses from measuring to showing: their schema, their files, and what they depend on."""
