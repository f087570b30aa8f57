"""What every other package uses: random numbers, spec strings, tables, JSON values."""
