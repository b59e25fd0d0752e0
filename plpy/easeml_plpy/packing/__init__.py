"""From source rows to packed blocks: reading, splitting, dealing and encoding."""
