"""Trainers of trials that grow trees: LightGBM's boosters and scikit-learn's forests."""
