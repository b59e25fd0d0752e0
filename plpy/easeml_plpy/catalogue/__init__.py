"""Which architectures there are, and which of them fit a dataset and its memory."""
