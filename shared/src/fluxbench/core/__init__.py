"""Settings, number formatting, progress, files and errors. Knows nothing of devices, kernels or records."""
