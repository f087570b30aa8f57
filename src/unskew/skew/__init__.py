"""Measuring how the data of a federation is skewed: labels, sizes and features."""
