"""Statistics of results: metrics, paired tests over seeds, and verdicts."""
