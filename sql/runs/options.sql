-- The arguments of easeml.select_models: checked, and completed with what the user left out.

CREATE OR REPLACE FUNCTION easeml.complete_budget(
    procedure text,
    n_configs integer,
    max_epochs integer,
    max_seconds double precision
) RETURNS jsonb LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.procedures.budget import complete_budget
from easeml_plpy.server.entry_points import guarded
return guarded(plpy, complete_budget, procedure, n_configs, max_epochs, max_seconds)
$$;
COMMENT ON FUNCTION easeml.complete_budget(text, integer, integer, double precision) IS
    'Returns procedure, max_epochs and max_seconds of a run as a json object, completed where the '
    'user left them out (internal).';

CREATE OR REPLACE FUNCTION easeml.measured_configs(tenant name, task text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Of the newest trials that trained for more than a moment; those of other tenants are theirs.
    RETURN (SELECT jsonb_agg(jsonb_build_object('architecture', m.architecture, 'dataset', m.dataset_name, 'config',
                m.config, 'quality', m.quality)) FROM (
        SELECT t.architecture, d.dataset_name, t.config,
            easeml.quality(r.metric, t.best_metric_value, e.value) AS quality
        FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) JOIN easeml.trials t ON t.run_id = r.run_id
        LEFT JOIN easeml.metric_values e ON e.trial_id = t.trial_id AND e.epoch = t.best_epoch
            AND e.split = 'validation' AND e.metric = 'r2'
        WHERE r.tenant = measured_configs.tenant AND d.task = measured_configs.task AND r.status = 'finished'
            AND t.best_metric_value IS NOT NULL AND t.architecture <> 'ensemble'
            AND octet_length(t.config::text) < 10000
        ORDER BY t.trial_id DESC LIMIT 2000) m WHERE m.quality IS NOT NULL);
END
$$;
COMMENT ON FUNCTION easeml.measured_configs(name, text) IS
    'Returns the results of a tenant''s newest trials of a task, as a json array (internal).';

CREATE OR REPLACE FUNCTION easeml.choose_portfolio(specifications jsonb, measured jsonb) RETURNS jsonb
LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.procedures.race.portfolio import choose_portfolio
from easeml_plpy.server.entry_points import guarded_and_bounded
return guarded_and_bounded(plpy, choose_portfolio, specifications, measured)
$$;
COMMENT ON FUNCTION easeml.choose_portfolio(jsonb, jsonb) IS
    'Returns the configs that a race tries first, by architecture, as a json object: those that were best across the '
    'tenant''s datasets, then those shipped (internal).';

CREATE OR REPLACE FUNCTION easeml.check_schedule(data easeml.datasets, scheduler text, visit_order text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted record;
BEGIN
    IF visit_order IS NULL OR visit_order NOT IN ('cyclic', 'free') THEN
        PERFORM easeml.fail('ML001',
            format('visit_order: expected cyclic or free, got %s', quote_nullable(visit_order)),
            hint => 'cyclic: the order, and so every byte, is fixed beforehand; free: the scheduler '
                'also chooses the partition.');
    END IF;
    IF scheduler = 'auto' THEN
        RETURN;  -- it chooses one that fits
    END IF;
    SELECT s.* INTO wanted FROM easeml.list_schedulers() s WHERE s.scheduler = check_schedule.scheduler;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML001', format('scheduler: there is no scheduler %s', quote_nullable(scheduler)),
            hint => (SELECT 'Choose one of: ' || string_agg(s.scheduler, ', ') || '.' FROM easeml.list_schedulers() s));
    ELSIF wanted.needs_free_order AND visit_order <> 'free' THEN
        PERFORM easeml.fail('ML001', format('scheduler: %s chooses the partitions, so it needs the visit order '
                'free, got %s', scheduler, visit_order),
            hint => 'Add visit_order => ''free'', or leave the scheduler to easeml.');
    ELSIF wanted.needs_single_holders AND EXISTS (SELECT FROM easeml.replicas c
        WHERE c.dataset_id = data.dataset_id GROUP BY c.partition_number HAVING count(*) > 1) THEN
        PERFORM easeml.fail('ML001',
            format('scheduler: %s needs one holder for each partition, and dataset %s is replicated', scheduler,
                quote_literal(data.dataset_name)),
            hint => 'Choose longest_remaining or random, or leave the scheduler to easeml.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_schedule(easeml.datasets, text, text) IS
    'Refuses a scheduler or visit order that does not exist or does not fit the dataset (internal).';

-- Rows that lie within their nodes go nowhere. Others go to a node that has some of them already, as long as the tenant
-- may keep so much; an open run has one node at least.
CREATE OR REPLACE FUNCTION easeml.gathering_segments(data easeml.datasets, is_open boolean) RETURNS integer[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most bigint := (SELECT t.max_bytes FROM easeml.tenants t WHERE t.tenant = data.tenant);
    n_left bigint;
BEGIN
    IF data.placement <> 'bound' OR data.shuffle = 'within' THEN
        RETURN '{}';
    END IF;
    IF most IS NOT NULL THEN
        -- A role that serves all tenants may ask for each of them, and a tenant for itself.
        n_left := most - coalesce(CASE WHEN has_function_privilege('easeml.kept_bytes(name)', 'EXECUTE')
                THEN easeml.kept_bytes(data.tenant) ELSE easeml.used_bytes(data.tenant) END, 0);
    END IF;
    -- Rows that a node already has cost nothing, so the node that needs least comes first, and is chosen every time.
    RETURN (SELECT coalesce(array_agg(f.segment_id ORDER BY f.segment_id) FILTER (WHERE n_left IS NULL
                OR f.n_lacking = 0 OR f.so_far <= n_left OR is_open AND f.place = 1), '{}')
        FROM (SELECT l.segment_id, l.n_lacking, sum(l.n_lacking) OVER w AS so_far, row_number() OVER w AS place
            FROM (SELECT g.segment_id,
                coalesce(sum(p.n_bytes) FILTER (WHERE p.home_segment_id IS DISTINCT FROM g.segment_id
                        AND NOT EXISTS (SELECT FROM easeml.row_copies c
                    WHERE c.dataset_id = p.dataset_id AND c.partition_number = p.partition_number
                        AND c.to_segment_id = g.segment_id)), 0) AS n_lacking
                FROM easeml.segments g CROSS JOIN easeml.partitions p
                WHERE g.service IS NOT NULL AND p.dataset_id = data.dataset_id AND EXISTS (SELECT FROM easeml.replicas r
                    WHERE r.dataset_id = data.dataset_id AND r.segment_id = g.segment_id)
                GROUP BY g.segment_id) l
            WINDOW w AS (ORDER BY l.n_lacking, l.segment_id ROWS UNBOUNDED PRECEDING)) f);
END
$$;
COMMENT ON FUNCTION easeml.gathering_segments(easeml.datasets, boolean) IS
    'Returns the nodes to which all rows of a dataset may be brought, for units over all '
    'partitions at once (internal).';

CREATE OR REPLACE FUNCTION easeml.apart_reason(data easeml.datasets) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF data.placement <> 'bound' OR EXISTS (SELECT FROM easeml.replicas c
        WHERE c.dataset_id = data.dataset_id GROUP BY c.segment_id HAVING count(*) = data.n_partitions)
        OR easeml.gathering_segments(data, false) <> '{}' THEN
        RETURN NULL;
    ELSIF data.shuffle = 'within' THEN
        RETURN format('the rows of dataset %s stay on their nodes (shuffle => ''within'')',
            quote_literal(data.dataset_name));
    ELSIF easeml.gathering_segments(data, true) <> '{}' THEN
        RETURN format('max_bytes: %s may not keep a copy of all rows of dataset %s on one node', data.tenant,
            quote_literal(data.dataset_name));
    END IF;
    RETURN format('no segment holds all of dataset %s', quote_literal(data.dataset_name));
END
$$;
COMMENT ON FUNCTION easeml.apart_reason(easeml.datasets) IS
    'Says why no unit can cover all partitions of a dataset at once; NULL if one can (internal).';

CREATE OR REPLACE FUNCTION easeml.apart_hint(data easeml.datasets) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN data.shuffle = 'within'
        THEN 'With shuffle => ''across'' rows may go to other nodes. Else leave such an architecture out.'
        WHEN easeml.gathering_segments(data, true) <> '{}'
            THEN 'Remove what is not needed, ask an administrator for more, or leave such an architecture out.'
        ELSE 'Replicate the dataset so that one segment holds all its partitions (easeml.replicate_dataset), or leave '
            'such an architecture out.' END
$$;
COMMENT ON FUNCTION easeml.apart_hint(easeml.datasets) IS
    'Says what to do if no unit can cover all partitions of a dataset at once (internal).';

CREATE OR REPLACE FUNCTION easeml.held_architectures(
    encoder jsonb,
    train_rows bigint[],
    architectures text[],
    OUT held text[],
    OUT left_out text
) LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.catalogue.config_memory import held_architectures
return held_architectures(plpy, GD, encoder, train_rows, architectures)
$$;
COMMENT ON FUNCTION easeml.held_architectures(jsonb, bigint[], text[]) IS
    'Returns the architectures whose default config some slot has the memory for, and in words what the others take; '
    'NULL if there are none. train_rows: the rows of each partition (internal).';

CREATE OR REPLACE FUNCTION easeml.choose_architectures(data easeml.datasets, architectures text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    chosen text[];
    unfit record;
    target jsonb := data.encoder -> 'target';
    output_shape integer[];
    n_recursive integer := jsonb_array_length(data.encoder #> '{inputs,0,recursive}');
    n_links integer := CASE n_recursive WHEN 1 THEN 0 ELSE n_recursive END;
    apart text := easeml.apart_reason(data);
    whole text[] := CASE WHEN apart IS NOT NULL THEN ARRAY(SELECT f.architecture FROM easeml.architecture_facts() f
        WHERE f.does_whole_rounds) END;
    left_out text;
BEGIN
    IF target ? 'shape' THEN
        output_shape := (SELECT array_agg(s::integer) FROM jsonb_array_elements_text(target -> 'shape') s);
    END IF;
    IF architectures IS NULL THEN
        SELECT array_agg(f.architecture) FILTER (WHERE apart IS NULL OR NOT f.architecture = ANY (whole)),
            string_agg(f.architecture, ', ') FILTER (WHERE apart IS NOT NULL AND f.architecture = ANY (whole))
            INTO chosen, left_out
        FROM easeml.fitting_architectures(data.task, data.input_shape, data.n_outputs, data.encoder
            @> '{"inputs": [{"kind": "text"}]}', output_shape, n_links) f WHERE f.misfit IS NULL AND f.is_default;
        IF left_out IS NOT NULL THEN
            RAISE NOTICE 'left out: %: they take all partitions at once, and %', left_out,
                apart USING hint = easeml.apart_hint(data);
        END IF;
        SELECT h.held, h.left_out INTO chosen, left_out FROM easeml.held_architectures(data.encoder,
            (SELECT array_agg(p.n_train_rows) FROM easeml.partitions p WHERE p.dataset_id = data.dataset_id),
            chosen) h;
        IF left_out IS NOT NULL AND cardinality(chosen) = 0 THEN
            PERFORM easeml.fail('ML001', format('architectures: no slot holds any of them: %s', left_out),
                hint => 'Make a dataset of fewer rows or classes, or ask an administrator for slots with more memory.');
        ELSIF left_out IS NOT NULL THEN
            RAISE NOTICE 'left out: %', left_out
                USING hint = 'Ask an administrator for slots with more memory, or make a dataset of fewer rows.';
        END IF;
    ELSIF cardinality(architectures) = 1 AND array_ndims(architectures) = 1 THEN
        chosen := architectures;
    ELSE
        SELECT array_agg(u.a ORDER BY u.place) INTO chosen
        FROM (SELECT n.a, min(n.place) AS place FROM unnest(architectures) WITH ORDINALITY n(a, place) GROUP BY n.a) u;
    END IF;
    IF coalesce(cardinality(chosen), 0) = 0 THEN
        PERFORM easeml.fail('ML001', 'architectures: expected at least one name, got an empty list',
            hint => 'SELECT * FROM easeml.architectures shows them; NULL lets easeml choose.');
    END IF;
    SELECT a AS architecture, f.misfit INTO unfit
    FROM unnest(chosen) a LEFT JOIN easeml.fitting_architectures(data.task, data.input_shape, data.n_outputs,
        output_shape => output_shape, n_links => n_links) f ON f.architecture = a
    WHERE f.architecture IS NULL OR f.misfit IS NOT NULL LIMIT 1;
    IF FOUND AND unfit.misfit IS NOT NULL THEN
        PERFORM easeml.fail('ML001', format('architectures: %s does not fit dataset %s: %s', unfit.architecture,
                quote_literal(data.dataset_name), unfit.misfit),
            hint => 'SELECT * FROM easeml.architectures says what fits what; NULL lets easeml choose.');
    ELSIF FOUND THEN
        PERFORM easeml.fail('ML001',
            format('architectures: there is no architecture %s', quote_nullable(unfit.architecture)),
            hint => (SELECT easeml.near_names(unfit.architecture, array_agg(a.architecture))
                FROM easeml.list_architectures() a) || ' SELECT * FROM easeml.architectures shows all of them.');
    END IF;
    IF apart IS NULL THEN
        RETURN chosen;
    END IF;
    SELECT a AS architecture INTO unfit FROM unnest(chosen) a WHERE a = ANY (whole) LIMIT 1;
    IF FOUND THEN
        PERFORM easeml.fail('ML001', format('architectures: %s takes all partitions at once, and %s',
                unfit.architecture, apart), hint => easeml.apart_hint(data));
    END IF;
    RETURN chosen;
END
$$;
COMMENT ON FUNCTION easeml.choose_architectures(easeml.datasets, text[]) IS
    'Returns the architectures of a run, each once: those named, or those that suit the data. Refuses one '
    'that does not fit (internal).';

CREATE OR REPLACE FUNCTION easeml.specifications(architectures text[], target jsonb) RETURNS jsonb
LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.catalogue.catalog import specifications
return specifications(plpy, GD, architectures, target)
$$;
COMMENT ON FUNCTION easeml.specifications(text[], jsonb) IS 'Returns the hyperparameters that architectures declare, '
    'as a procedure reads them, for a dataset with that target (internal).';

CREATE OR REPLACE FUNCTION easeml.takes_n_parallel(procedure text) RETURNS boolean
LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.procedures import takes_n_parallel
from easeml_plpy.server.entry_points import guarded
return guarded(plpy, takes_n_parallel, procedure)
$$;
COMMENT ON FUNCTION easeml.takes_n_parallel(text) IS
    'Returns whether a procedure has the option n_parallel (internal).';

-- PL/pgSQL because it keeps its plans: planning takes longer than the query.
CREATE OR REPLACE FUNCTION easeml.complete_options(procedure text, options jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF jsonb_typeof(options) <> 'object' OR NOT easeml.takes_n_parallel(procedure) THEN
        RETURN options;
    END IF;
    RETURN jsonb_build_object('n_parallel',
        (SELECT greatest(count(*), 1) FROM easeml.slots s WHERE s.status = 'active')) || coalesce(options, '{}');
END
$$;
COMMENT ON FUNCTION easeml.complete_options(text, jsonb) IS
    'Completes the options of a procedure: n_parallel, if the procedure has it and the user did not set it, becomes '
    'the number of slots (internal).';
