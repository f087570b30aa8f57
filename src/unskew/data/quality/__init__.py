"""The check of a federation's data before training: what is wrong or doubtful, and what to do."""
