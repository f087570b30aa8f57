"""Partitioners: rules that divide the samples of a data set among clients."""
