"""Records to findings: groups, ranks, what changed between two measurements, history, the certificate, the audit."""
