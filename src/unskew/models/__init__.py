"""The networks, by name."""
