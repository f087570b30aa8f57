"""What happened in a run, in memory and in its folder."""
