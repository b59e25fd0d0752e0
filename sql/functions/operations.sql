CREATE FUNCTION easeml.version() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'easeml'
$$;
COMMENT ON FUNCTION easeml.version() IS 'The installed version of the extension.';

CREATE FUNCTION easeml.python_facts() RETURNS jsonb LANGUAGE plpython3u AS $$
import importlib, json, sys
facts = {"python": sys.version.split()[0], "path": list(sys.path), "modules": {}, "faults": {}}
for name in ("numpy", "torch", "sklearn", "safetensors", "easeml_plpy", "easeml_db"):
    try:
        module = importlib.import_module(name)
        facts["modules"][name] = {"version": getattr(module, "__version__", None), "file": module.__file__}
    except Exception as error:  # whatever keeps a package from importing is what the doctor wants to know
        facts["faults"][name] = f"{type(error).__name__}: {error}"
if "torch" in facts["modules"]:
    import torch
    facts["devices"] = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
return json.dumps(facts)
$$;
COMMENT ON FUNCTION easeml.python_facts() IS 'Which Python the server runs, what it can import and which devices it sees (for easeml doctor).';

CREATE FUNCTION easeml.set_slots(n integer, n_threads integer DEFAULT 1, device text DEFAULT 'cpu', memory_limit_bytes bigint DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF n IS NULL OR n NOT BETWEEN 1 AND 1000 THEN
        PERFORM easeml.fail('ML001', format('n: expected 1 to 1000 slots, got %s', coalesce(n::text, 'NULL')));
    END IF;
    IF device IS NULL OR device !~ '^(cpu|cuda:[0-9]+)$' THEN
        PERFORM easeml.fail('ML001', format('device: expected cpu or cuda:N, got %s', quote_nullable(device)));
    END IF;
    IF n_threads IS NULL OR n_threads NOT BETWEEN 1 AND 1024 THEN
        PERFORM easeml.fail('ML001', format('n_threads: expected 1 to 1024, got %s', coalesce(n_threads::text, 'NULL')));
    END IF;
    IF memory_limit_bytes < 268435456 THEN
        PERFORM easeml.fail('ML001', format('memory_limit_bytes: expected at least 256 MB (268435456), got %s', memory_limit_bytes));
    END IF;
    DELETE FROM easeml.slots s WHERE s.slot_id > n;
    INSERT INTO easeml.slots (slot_id, slot_name, device, n_threads, memory_limit_bytes)
    SELECT i, 'slot-' || i, set_slots.device, set_slots.n_threads, set_slots.memory_limit_bytes FROM generate_series(1, n) i
    ON CONFLICT (slot_id) DO UPDATE SET device = excluded.device, n_threads = excluded.n_threads, memory_limit_bytes = excluded.memory_limit_bytes;
    PERFORM pg_notify('easeml_slots', n::text);
END
$$;
COMMENT ON FUNCTION easeml.set_slots(integer, integer, text, bigint) IS
    'Sets how many units run side by side on this server, with how many CPU threads each, on which device (cpu, or cuda:N) and with how much memory at most. A running coordinator takes it up at once.';
