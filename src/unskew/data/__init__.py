"""Data sources, file readers, and the columnar federation that holds all samples."""
