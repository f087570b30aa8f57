"""Runs: their metrics, costs and checkpoints, in memory and in their folders."""
