"""What a tenant keeps is counted once in a transaction and added up from then on."""

import easeml_plpy
from easeml_plpy.server.kept_bytes import add_bytes, begin_count


class Server:
    """As much of plpy as a session needs to begin."""

    SPIError = RuntimeError

    def prepare(self, sql, types):
        return sql

    def execute(self, plan, values):
        return [{"version": easeml_plpy.__version__}]


def test_bytes_add_up_within_a_transaction():
    kept = {}
    assert add_bytes(Server(), kept, "anna", "7", 10) is None
    assert begin_count(Server(), kept, "anna", "7", 100) == 100
    assert add_bytes(Server(), kept, "anna", "7", 10) == 110
    assert add_bytes(Server(), kept, "anna", "7", 5) == 115


def test_each_tenant_and_each_transaction_counts_for_itself():
    kept = {}
    begin_count(Server(), kept, "anna", "7", 100)
    assert add_bytes(Server(), kept, "bert", "7", 10) is None
    begin_count(Server(), kept, "bert", "7", 1)
    assert add_bytes(Server(), kept, "anna", "7", 1) == 101
    assert add_bytes(Server(), kept, "anna", "8", 10) is None
    begin_count(Server(), kept, "bert", "8", 3)
    assert add_bytes(Server(), kept, "anna", "8", 10) is None
