"""Sessions of slots: units are called on them, watched and ended."""
