"""Programs that time a round of other frameworks on the same workloads."""
