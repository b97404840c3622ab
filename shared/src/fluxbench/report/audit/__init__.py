"""What the audit of a table shows: sentences, tables, a figure, and text for a terminal."""
