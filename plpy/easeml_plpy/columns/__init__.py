"""What the columns of a dataset are: how values are parsed, encoded and decoded, and the statistics of each."""
