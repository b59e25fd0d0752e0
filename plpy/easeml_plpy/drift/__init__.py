"""How far the rows of a source are from the rows that a dataset was trained on."""
