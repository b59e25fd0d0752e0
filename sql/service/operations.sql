CREATE OR REPLACE FUNCTION easeml.version() RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'easeml'
$$;
COMMENT ON FUNCTION easeml.version() IS 'Returns the installed version of the extension.';

CREATE OR REPLACE FUNCTION easeml.python_facts() RETURNS jsonb
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
import importlib, json, sys
facts = {"python": sys.version.split()[0], "path": list(sys.path), "modules": {}, "faults": {}}
for name in ("numpy", "torch", "sklearn", "safetensors", "easeml_plpy", "easeml_db"):
    try:
        module = importlib.import_module(name)
        facts["modules"][name] = {"version": getattr(module, "__version__", None), "file": module.__file__}
    except Exception as error:  # whatever keeps a package from importing is what the doctor wants to know
        facts["faults"][name] = f"{type(error).__name__}: {error}"
if {"torch", "easeml_plpy"} <= facts["modules"].keys():
    from easeml_plpy.server.devices import devices
    facts["devices"] = devices()
return json.dumps(facts)
$$;
COMMENT ON FUNCTION easeml.python_facts() IS
    'Describes the server''s Python as JSON for easeml doctor: version, path, packages that it can import, devices.';

-- SECURITY DEFINER, because only the owner of a table may analyse it. It takes nothing from its caller.
CREATE OR REPLACE FUNCTION easeml.analyse_grown() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relation regclass;
    n_analysed integer := 0;
BEGIN
    -- Plans that were made while a table had one page scan all of it, and sessions keep them until its statistics
    -- change. Autovacuum checks once a minute, and a tenant fills a table within a second. Of pages, since rows of a
    -- transaction that is still open fill them, too, and versions that an old snapshot keeps. SECURITY DEFINER, because
    -- only their owner may analyse them.
    FOR relation IN SELECT c.oid FROM pg_class c WHERE c.oid IN ('easeml.runs'::regclass, 'easeml.arms'::regclass,
        'easeml.trials'::regclass, 'easeml.slots'::regclass)
        AND pg_relation_size(c.oid) > 2 * greatest(c.relpages, 4) * current_setting('block_size')::bigint ORDER BY c.oid
    LOOP
        EXECUTE format('ANALYZE (SKIP_LOCKED) %s', relation);
        n_analysed := n_analysed + 1;
    END LOOP;
    RETURN n_analysed;
END
$$;
COMMENT ON FUNCTION easeml.analyse_grown() IS 'Renews the planner statistics of tables in which units look up rows, if '
    'they have doubled since the last time; returns how many there were. Sessions then plan anew (internal).';
