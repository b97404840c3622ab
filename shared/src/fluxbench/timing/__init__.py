"""How times are taken: burst and sustained samples, the profiler, the control kernel, the device's rates, telemetry."""
