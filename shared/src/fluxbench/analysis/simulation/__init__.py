"""How often the verdicts on a whole page are right: simulated pages with the spreads of published samples."""
