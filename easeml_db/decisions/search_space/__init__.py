"""A checked search space: configs drawn from it at random, or enumerated as a grid.

A search space is a JSON object. A key is a hyperparameter, for every chosen architecture that has it, or an
architecture, whose nested object is meant for it alone and wins over the common part:

    {"learning_rate": {"type": "float", "low": 1e-4, "high": 1e-1, "log": true},    a range
     "batch_size": [32, 256],                                                       choices
     "weight_decay": 0,                                                             fixed
     "mlp": {"hidden_units": [[128], [256, 128]]}}                                  for mlp alone

Hyperparameters that a search space does not mention keep their default value: a search space
says what varies. Without any search space (NULL or {}) every architecture's own default ranges are searched.

    specs.py      what an architecture declares about a hyperparameter, and whether a value is legal
    domains.py    what a hyperparameter may take in this run: choices or a range
    parsing.py    JSON -> SearchSpace, refusing with the exact path
    sampling.py   n configs at random          grid.py   all configs in order
    documents.py  JSON within bounds
    configs.py    the form of a config       refusal.py  the wording of refusals
"""
