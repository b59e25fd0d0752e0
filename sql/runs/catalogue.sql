-- What a run can ask for: architectures, metrics, procedures, schedulers and allocations, as the installed Python
-- packages list them.

CREATE FUNCTION easeml.list_architectures(
    OUT architecture text,
    OUT trainer text,
    OUT tasks text[],
    OUT input_ranks integer[],
    OUT summary text,
    OUT hyperparameters jsonb,
    OUT made_for text[]
) RETURNS SETOF record LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.catalogue.catalog import list_architectures
return list_architectures(plpy, GD)
$$;
COMMENT ON FUNCTION easeml.list_architectures() IS
    'Lists the architectures that the installed package can train (internal: read easeml.architectures).';

-- Every run is asked for it, so it is said here, too: the installed package is not loaded for it.
CREATE FUNCTION easeml.does_whole_rounds(architecture text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT architecture = ANY ('{lightgbm,extra_trees,random_forest,ensemble}')
$$;
COMMENT ON FUNCTION easeml.does_whole_rounds(text) IS 'Returns whether trials of an architecture train on all '
    'partitions at once, so that each of their rounds is one unit on one slot (internal).';

CREATE FUNCTION easeml.batch_key(architecture text, config jsonb) RETURNS text
LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.catalogue.catalog import batch_key
return batch_key(plpy, GD, architecture, config)
$$;
COMMENT ON FUNCTION easeml.batch_key(text, jsonb) IS
    'Returns a hash of everything that shapes a trial''s computation: trials with equal hashes may train as one. NULL '
    'for an architecture that never does (internal).';

CREATE FUNCTION easeml.list_metrics(
    OUT metric text,
    OUT task text,
    OUT is_higher_better boolean,
    OUT is_default boolean,
    OUT summary text
) RETURNS SETOF record LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.catalogue.catalog import list_metrics
return list_metrics(plpy, GD)
$$;
COMMENT ON FUNCTION easeml.list_metrics() IS
    'Lists the metrics by which a run can rank its trials (internal: read easeml.metrics).';

CREATE FUNCTION easeml.fitting_architectures(
    task text,
    input_shape integer[],
    n_outputs integer,
    has_texts boolean DEFAULT false,
    output_shape integer[] DEFAULT NULL,
    n_links integer DEFAULT NULL,
    OUT architecture text,
    OUT misfit text,
    OUT is_default boolean
) RETURNS SETOF record LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.catalogue.catalog import fitting_architectures
return fitting_architectures(plpy, GD, task, input_shape, n_outputs, has_texts, output_shape, n_links)
$$;
COMMENT ON FUNCTION easeml.fitting_architectures(text, integer[], integer, boolean, integer[], integer) IS
    'Lists every architecture with the reason why it does not fit data of the given task and shape, or NULL if it '
    'fits. has_texts: whether an input is free text. output_shape: sizes of output tensors. n_links: for inputs that '
    'are series (0) or trees, how many other objects an object links to.';

CREATE FUNCTION easeml.list_procedures(
    OUT procedure text,
    OUT is_one_shot boolean,
    OUT options text[],
    OUT summary text
) RETURNS SETOF record LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.procedures import list_procedures
from easeml_plpy.server.session import guarded
return guarded(plpy, list_procedures)
$$;
COMMENT ON FUNCTION easeml.list_procedures() IS
    'Lists the procedures that a run can use (internal: read easeml.procedures).';

CREATE FUNCTION easeml.list_schedulers(
    OUT scheduler text,
    OUT needs_free_order boolean,
    OUT needs_single_holders boolean,
    OUT is_default boolean,
    OUT summary text
) RETURNS SETOF record LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.hopper.schedulers.registry import list_schedulers
from easeml_plpy.server.session import guarded
return guarded(plpy, list_schedulers)
$$;
COMMENT ON FUNCTION easeml.list_schedulers() IS
    'Lists the schedulers that a run can use (internal: read easeml.schedulers).';

CREATE FUNCTION easeml.complete_allocation(allocation text, has_time_limit boolean) RETURNS text
LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.hopper.allocation.registry import complete_allocation
from easeml_plpy.server.session import guarded
return guarded(plpy, complete_allocation, allocation, has_time_limit)
$$;
COMMENT ON FUNCTION easeml.complete_allocation(text, boolean) IS
    'Returns the allocation of a run: the one that it asks for, or the default (internal).';

CREATE FUNCTION easeml.list_allocations() RETURNS SETOF text
LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.hopper.allocation.registry import list_allocations
from easeml_plpy.server.session import guarded
return guarded(plpy, list_allocations)
$$;
COMMENT ON FUNCTION easeml.list_allocations() IS
    'Lists the allocations that a run can use, which decide how its trials share the slots (internal).';

CREATE FUNCTION easeml.needs_gangs(allocation text) RETURNS boolean
LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.hopper.allocation.registry import needs_gangs
from easeml_plpy.server.session import guarded
return guarded(plpy, needs_gangs, allocation)
$$;
COMMENT ON FUNCTION easeml.needs_gangs(text) IS
    'Returns whether an allocation is for gangs: several slots that train one trial (internal).';

CREATE FUNCTION easeml.list_templates(
    OUT place integer,
    OUT template text,
    OUT workload text,
    OUT input text,
    OUT output text,
    OUT candidates text[],
    OUT architectures text[]
) RETURNS SETOF record LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.templates.catalogue import list_templates
from easeml_plpy.server.session import guarded
return guarded(plpy, list_templates)
$$;
COMMENT ON FUNCTION easeml.list_templates() IS
    'Lists the templates, which decide the architectures that may learn a program (internal: read easeml.templates).';
