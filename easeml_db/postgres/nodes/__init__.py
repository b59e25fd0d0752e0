"""Other servers as segments: how they are reached, what they hold, and what travels between them."""
