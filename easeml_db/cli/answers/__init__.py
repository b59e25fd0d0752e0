"""Commands for answers: prediction, evaluation, drift, files."""
