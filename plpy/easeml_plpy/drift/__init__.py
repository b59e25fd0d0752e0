"""Drift: how far the rows of a source are from the training rows of a dataset."""
