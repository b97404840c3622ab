"""Settings, numbers as text, progress, files, what is printed, errors. Knows nothing of devices, kernels or records."""
