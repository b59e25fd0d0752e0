"""Tasks: their examples, and how these are packed."""
