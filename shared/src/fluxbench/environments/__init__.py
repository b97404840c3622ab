"""The header of a measuring cell, and an interpreter that holds its packages."""
