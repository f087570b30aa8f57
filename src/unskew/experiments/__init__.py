"""Experiments: comparisons of methods, the search for hyper-parameters, and studies of papers."""
