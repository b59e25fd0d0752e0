"""States of trials as bytes, and where they are stored."""
