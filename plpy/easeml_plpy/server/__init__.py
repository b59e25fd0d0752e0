"""The boundary to PL/Python: sessions, errors, transactions, memory, devices. Everything else stands on it."""
