"""The papers' experiments, one file each, and what they share.

contract.py    what an experiment is given and gives back
registry.py    which there are
writing.py     the files of a result
experiment_server.py  a private server for those that need PostgreSQL
"""

from easeml_experiments.contract import Experiment, Measure, Options, Parameter, Result, at_least, at_most

__all__ = ["Experiment", "Measure", "Options", "Parameter", "Result", "at_least", "at_most"]
