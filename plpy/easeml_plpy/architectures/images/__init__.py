"""Convolutional networks for images, one file each, and what they share."""
