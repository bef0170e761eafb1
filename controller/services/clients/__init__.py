"""Where clients are, and what was asked for them."""
