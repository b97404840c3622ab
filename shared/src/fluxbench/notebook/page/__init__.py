"""A notebook's page, drawn from its prose, its cells' code and their results by templates of our own."""
