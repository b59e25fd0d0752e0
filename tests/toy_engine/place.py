"""What a segment is that is a toy: a member of a cluster of toys, whose number is even."""

from easeml_db.errors import InvalidArgument

SERVER, CONTENT = "a toy", "which toy (0, 2, ...)"


def check_place(service, content):
    """Refuse what is no toy."""
    if service is None or content is None or content % 2:
        raise InvalidArgument(f"content: expected an even number of a toy, got {content}", hint="0, 2, ...")
