"""Where samples come from, and the columnar federation that holds them."""
