"""Names of relations as users write them in SQL: PostgreSQL 9.4 has no parse_ident."""

from __future__ import annotations

import re
from string import ascii_lowercase, ascii_uppercase

from easeml_plpy.server.errors import InvalidArgument

PART = r'"(?:[^"]|"")+"|[^\W\d][\w$]*'
QUALIFIED = re.compile(rf"\s*({PART})\s*\.\s*({PART})\s*")
FOLDED = str.maketrans(ascii_uppercase, ascii_lowercase)


def schema_and_name(name: str) -> tuple[str, str]:
    """Return schema and name of a relation that is named with both. Raises InvalidArgument.

    >>> schema_and_name('Public."Big ""Sales"')
    ('public', 'Big "Sales')
    """
    match = QUALIFIED.fullmatch(name)
    if match is None:
        raise InvalidArgument(f"expected schema and name of a table, got {name}", hint="For example public.sales.")
    schema, relation = (_part(part) for part in match.groups())
    return schema, relation


def _part(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part.translate(FOLDED)
