"""Networks for trees, one file each, and what they share."""
