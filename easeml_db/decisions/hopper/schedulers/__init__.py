"""Schedulers: which trial trains next on which slot."""
