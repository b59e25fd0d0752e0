"""The engine of PostgreSQL servers, each with the extension easeml_segment: nothing differs."""

from easeml_db.postgres.nodes.engine import Engine

ENGINES = (Engine(),)
