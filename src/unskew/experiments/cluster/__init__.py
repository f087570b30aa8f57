"""Runs on other machines: Ray, Dask, Slurm, or any executor of ``concurrent.futures``."""
