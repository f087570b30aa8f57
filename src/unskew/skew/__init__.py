"""Measures of how skewed a federation's labels, sizes and features are."""
