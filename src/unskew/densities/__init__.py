"""Densities of samples: networks, sampling, and the distance from a normal distribution."""
