"""What owners have written, such as CHECKs, views and index expressions, runs with its owner's rights."""
