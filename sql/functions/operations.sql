CREATE FUNCTION easeml.version() RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'easeml'
$$;
COMMENT ON FUNCTION easeml.version() IS 'Returns the installed version of the extension.';

CREATE FUNCTION easeml.python_facts() RETURNS jsonb LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
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
COMMENT ON FUNCTION easeml.python_facts() IS 'Describes the server''s Python as JSON for easeml doctor: version, path, packages that it can import, devices.';
