"""Trials as files: written here, checked and read elsewhere."""
