"""What goes at once: all of it, in order, within the bounds."""

from easeml_plpy.server import chunks


def test_chunks_of_a_state_are_the_state():
    state = bytes(range(256)) * (3 * chunks.STATE_CHUNK_BYTES // 256) + b"end"
    found = list(chunks.state_chunks(state))
    assert [number for number, _ in found] == [0, 1, 2, 3]
    assert b"".join(chunk for _, chunk in found) == state
    assert list(chunks.state_chunks(b"")) == []


def test_blocks_and_passes_hold_a_few_rows_of_any_size():
    assert [chunks.block_rows(n_bytes) for n_bytes in (0, 1, 1024, 1 << 30)] == [8192, 8192, 2048, 64]
    assert [chunks.pass_steps(n_bytes) for n_bytes in (1, 1 << 20, 1 << 30)] == [64, 4, 1]
