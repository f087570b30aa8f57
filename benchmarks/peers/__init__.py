"""Programs that time rounds of other frameworks on the workloads of `benchmarks.workloads`."""
