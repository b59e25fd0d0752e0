"""The coordinator of easeml: decides which trial trains next, where and for how long; PostgreSQL does the rest."""

__version__ = "0.2.0"
