"""Densities of samples: what they are measured by, drawn from and compared with."""
