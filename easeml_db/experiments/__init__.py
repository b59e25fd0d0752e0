"""The papers' experiments, one file each, and what they share.

contract.py    what an experiment is given and gives back
"""
