"""The site over all targets: `reports/index.html` and `reports/compare.html`, from records alone."""
