"""Trainers of networks by gradient descent, alone, in stacks and on several ranks."""
