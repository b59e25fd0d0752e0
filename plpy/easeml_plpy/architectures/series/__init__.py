"""Networks for series, one file each, and what they share."""
