"""Successive halving and its relatives: Hyperband, ASHA, BOHB."""
