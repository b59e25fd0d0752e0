"""A fourth engine, as somebody would add it: the files of this folder, and the line REGISTER in the registry.

It is a PostgreSQL server that answers under another name, and writes down which units come.
"""

NAME = "toy"
REGISTER = f"""
from easeml_db.postgres.nodes.engines import ENGINES
ENGINES["{NAME}"] = "toy_engine"
"""
