"""The certificate: the harness measured by itself, with kernels that are slowed on purpose and runs of a notebook."""
