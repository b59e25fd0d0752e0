-- What users do with tasks. Views and trigger functions are made in the schema of the caller, with the rights of the
-- caller.

CREATE OR REPLACE FUNCTION easeml.find_task(task text) RETURNS easeml.tasks
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN easeml.task_of(current_user, easeml.current_tenant(), task);
END
$$;
COMMENT ON FUNCTION easeml.find_task(text) IS
    'Returns your task of that name, or raises an error that lists your tasks (internal).';

CREATE OR REPLACE FUNCTION easeml.create_task(
    name text,
    program text,
    schema text,
    classes text[] DEFAULT NULL,
    storage text DEFAULT NULL,
    run_after_examples integer DEFAULT 100,
    run_after_minutes double precision DEFAULT 5,
    run_options jsonb DEFAULT '{}',
    validation_fraction double precision DEFAULT 0.15,
    test_fraction double precision DEFAULT 0.15,
    seed bigint DEFAULT 0,
    n_partitions integer DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made jsonb;
BEGIN
    PERFORM easeml.check_place(schema, name);
    made := easeml.request('create_task', jsonb_build_object('name', name, 'program', program, 'schema', schema,
            'classes', classes, 'storage', storage, 'run_after_examples', run_after_examples,
        'run_after_minutes', run_after_minutes, 'run_options', run_options, 'validation_fraction', validation_fraction,
        'test_fraction', test_fraction, 'seed', seed, 'n_partitions', n_partitions));
    PERFORM easeml.make_task_views(schema, name, made ->> 'examples',
        ARRAY(SELECT i ->> 'column' FROM jsonb_array_elements(made #> '{specification,inputs}') i));
    IF jsonb_array_length(made #> '{specification,recursive}') > 0 THEN
        PERFORM easeml.make_objects_view(schema, name, made ->> 'examples', made -> 'specification');
    END IF;
    RAISE NOTICE '%', format('%s; %s architecture%s: %s; tables %s and %s', made ->> 'workload',
        jsonb_array_length(made -> 'arms'), CASE WHEN jsonb_array_length(made -> 'arms') > 1 THEN 's' END,
            (SELECT string_agg(a, ', ') FROM jsonb_array_elements_text(made -> 'arms') a), made ->> 'place',
            format('%I.%I', schema, name || '_refine'))
        USING hint = format('Feed it: INSERT INTO %s, or easeml.feed(%L, input => ..., output => ...).',
            made ->> 'place', name);
    RETURN (made ->> 'task_id')::bigint;
END
$$;
COMMENT ON FUNCTION easeml.create_task(text, text, text, text[], text, integer, double precision, jsonb,
    double precision, double precision, bigint, integer) IS
$$Creates a task from the shapes of its inputs and outputs, and returns its id. Feed it examples: the service packs
them, trains, and keeps the best model, which easeml.infer asks.
name: unique among your tasks, at most 50 bytes. The view of its examples in your schema has the same name; a second
    view, name_refine, shows every example that was ever fed.
program: {input: {[Tensor[64,64,3]],[]}, output: {[Tensor[3]],[]}}, or for short Input = [64,64,3] Output = [3]. An
    output Tensor[1] is a number; an output of several numbers means classes.
schema: one in which you may create tables. classes: names of the classes in the order of the output tensor; by default
    0, 1, 2 and so on.
storage: bytes (tensors of 8-bit values, kept as bytea) or numbers (arrays of real); by default bytes for pictures:
    three sizes of which the last is 1, 3 or 4.
run_after_examples: a run starts automatically once this many examples were fed or switched. run_after_minutes: or this
    many minutes after the first of them. NULL: never; both NULL: only by easeml.run_task.
run_options: arguments of easeml.select_models for its runs, for example {"max_seconds": 600}. validation_fraction,
    test_fraction, seed: as in easeml.create_dataset.
n_partitions: number of parts that train in parallel; by default 1, and 4 from 2,000 examples on.$$;

CREATE OR REPLACE FUNCTION easeml.check_place(schema text, name text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    taken text;
BEGIN
    IF to_regnamespace(quote_ident(schema)) IS NULL THEN
        PERFORM easeml.fail('ML003', format('schema: there is no schema %s', quote_nullable(schema)),
            hint => 'Make one: CREATE SCHEMA lab;');
    ELSIF NOT has_schema_privilege(schema, 'CREATE') THEN
        PERFORM easeml.fail('ML004', format('schema: role %s may not create tables in it', quote_ident(current_user)),
            hint => 'Name a schema of your own.');
    END IF;
    SELECT c.relname INTO taken FROM pg_class c WHERE c.relnamespace = to_regnamespace(quote_ident(schema))
        AND c.relname IN (name, name || '_refine', name || '_objects') LIMIT 1;
    IF FOUND THEN
        PERFORM easeml.fail('ML001', format('name: there is a table or view %I.%I already', schema, taken),
            hint => 'Choose another name, or another schema.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_place(text, text) IS
    'Refuses a schema in which the views of a task cannot be made (internal).';

CREATE OR REPLACE FUNCTION easeml.make_task_views(schema text, name text, examples text, inputs text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    columns text := (SELECT string_agg(quote_ident(i), ', ') FROM unnest(inputs) i) || ', output';
    place text := format('%I.%I', schema, name);
    feeder text := format('%I.%I', schema, name || '_feed');
    variables text;
    missing text;
    wrong text;
BEGIN
    EXECUTE format('CREATE VIEW %s AS SELECT example_id, %s FROM %s', place, columns, examples);
    EXECUTE format('CREATE VIEW %I.%I AS SELECT example_id, fed_at, is_on, %s FROM %s', schema,
        name || '_refine', columns, examples);
    -- The trigger says of a row what the constraints of the table would refuse it for. Variables have the names of the
    -- columns.
    SELECT string_agg(format('%I %s := NEW.%1$I;', a.attname, format_type(a.atttypid, NULL)), ' '),
        string_agg(format('WHEN %1$I IS NULL THEN %2$L', a.attname, a.attname || ': expected a value, got NULL'),
            ' ') FILTER (WHERE a.attnotnull)
    INTO variables, missing FROM pg_attribute a WHERE a.attrelid = examples::regclass
        AND a.attname = ANY (inputs || 'output'::text);
    SELECT string_agg(format('WHEN (%s) IS FALSE THEN %s', c.expression,
            CASE WHEN cardinality(c.conkey) > 1 THEN format('%L', 'expected that ' || c.conname
                || CASE c.conname WHEN 'links form one tree' THEN ': an earlier object leads to each but the first, '
                    'exactly once, and there are at most 256 levels' ELSE '' END)
            ELSE format('%L || %s', a.attname || ': expected ' || regexp_replace(c.conname, '^.* is ', '')
                || CASE WHEN a.atttypid = 'bytea'::regtype THEN ', ' || substring(c.expression, '= ([0-9]+)')
                    || ' bytes' ELSE '' END || ', got ',
                replace(CASE a.atttypid WHEN 'bytea'::regtype THEN 'octet_length(?)::text'
                        WHEN 'text'::regtype THEN 'quote_literal(left(?, 60))' WHEN 'float8'::regtype THEN '?::text'
                    ELSE 'coalesce(''an array '' || array_dims(?), ''an empty array'') || CASE WHEN num_nulls(VARIADIC '
                        '?) > 0 THEN '', with NULL in it'' WHEN ?::real[] && ''{NaN,Infinity,-Infinity}'' THEN '', '
                        'with NaN or infinity in it'' ELSE '''' END'
                    END, '?', quote_ident(a.attname))) END), ' ' ORDER BY c.conname)
    INTO wrong FROM (SELECT c.*, pg_get_expr(c.conbin, c.conrelid) AS expression FROM pg_constraint c
        WHERE c.conrelid = examples::regclass AND c.contype = 'c') c
    LEFT JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1];
    -- With a trigger, COPY takes the view for a table; in the schema of the caller it has a plan of its own, which one
    -- for all tasks could not keep.
    EXECUTE format('CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS %L',
        feeder,
        format('DECLARE %s problem text := CASE %s %s END;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION USING errcode = ''ML009'', message = problem,
            detail = format(''The row: %%s'', left(concat_ws('', '', %s), 200)), hint = %L;
    END IF;
    INSERT INTO %s (%s) VALUES (%s) RETURNING example_id INTO NEW.example_id;
    RETURN NEW;
END',
            variables, missing, wrong, (SELECT string_agg(format('left(%s::text, 60)',
                        CASE WHEN a.atttypid = 'bytea'::regtype THEN format('substr(%I, 1, 30)', a.attname)
                            ELSE quote_ident(a.attname) END), ', ' ORDER BY a.attnum)
                FROM pg_attribute a WHERE a.attrelid = examples::regclass
                    AND a.attname = ANY (inputs || 'output'::text)),
            format('Nothing of the statement was stored. Mend the row, or leave '
                'such rows out: easeml.feed(%L, examples => ..., on_error => ''skip'').', name), examples, columns,
            'NEW.' || replace(columns, ', ', ', NEW.')));
    EXECUTE format('CREATE TRIGGER feed INSTEAD OF INSERT ON %s FOR EACH ROW EXECUTE FUNCTION %s()', place, feeder);
END
$$;
COMMENT ON FUNCTION easeml.make_task_views(text, text, text, text[]) IS
    'Makes the views of a task with the rights of the caller (internal).';

CREATE OR REPLACE FUNCTION easeml.make_objects_view(schema text, name text, examples text, specification jsonb)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first jsonb := specification #> '{inputs,0}';
    whole text;
    parts text;
BEGIN
    SELECT string_agg(CASE WHEN i ->> 'role' = 'link' THEN format('e.%I', i ->> 'column')
            ELSE format('e.%1$I || ''{}''::real[] AS %1$I', i ->> 'column') END, ', '),
        string_agg(CASE WHEN i ->> 'role' = 'link' THEN format('w.%1$I[o.object] AS %1$I', i ->> 'column')
            WHEN jsonb_array_length(i -> 'shape') = 1
                THEN format('ARRAY(SELECT unnest(w.%1$I[o.object:o.object])) AS %1$I', i ->> 'column')
            ELSE format('w.%1$I[o.object:o.object] AS %1$I', i ->> 'column') END, ', ')
    INTO whole, parts FROM jsonb_array_elements(specification -> 'inputs') i;
    IF jsonb_array_length(specification -> 'recursive') = 1 THEN
        parts := parts || format(', CASE WHEN o.object < cardinality(w.%I) / %s THEN o.object + 1 END AS %I',
            first ->> 'column', first ->> 'n_values', 'input_' || (specification #>> '{recursive,0}'));
    END IF;
    -- Its arrays are fetched once for each example, and not for each object.
    EXECUTE format('CREATE VIEW %I.%I AS SELECT e.example_id, o.object, %s FROM %s e, LATERAL (SELECT %s OFFSET 0) w, '
        'LATERAL generate_series(1, cardinality(w.%I) / %s) o(object)',
        schema, name || '_objects', parts, examples, whole, first ->> 'column', first ->> 'n_values');
END
$$;
COMMENT ON FUNCTION easeml.make_objects_view(text, text, text, jsonb) IS
    'Makes the view of the objects of series or trees, a row for each, with the rights of the caller (internal).';

CREATE OR REPLACE FUNCTION easeml.alter_task(
    task text,
    run_after_examples integer,
    run_after_minutes double precision,
    run_options jsonb DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('alter_task', jsonb_build_object('task', task, 'run_after_examples', run_after_examples,
            'run_after_minutes', run_after_minutes, 'run_options', run_options));
END
$$;
COMMENT ON FUNCTION easeml.alter_task(text, integer, double precision, jsonb) IS
    'Changes when runs of a task start automatically, and with which arguments; see easeml.create_task. NULL for both: '
    'only by hand. Without run_options, the former ones stay.';

CREATE OR REPLACE FUNCTION easeml.run_task(task text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('run_task', jsonb_build_object('task', task));
END
$$;
COMMENT ON FUNCTION easeml.run_task(text) IS 'Starts a run of a task in the background: the service packs what '
    'changed, and trains. If a run of the task is open, the next one begins after it.';

CREATE OR REPLACE FUNCTION easeml.drop_task(task text, cascade boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.tasks := easeml.find_task(task);
    names text[] := parse_ident(found.place);
BEGIN
    IF NOT cascade AND EXISTS (SELECT FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
        WHERE d.tenant = found.tenant AND d.dataset_name = found.task_name) THEN
        PERFORM easeml.fail('ML004', format('task %s has runs, which would be lost with it', quote_literal(task)),
            hint => format('To remove them all: SELECT easeml.drop_task(%L, cascade => true).', task));
    END IF;
    EXECUTE format('DROP VIEW IF EXISTS %1$s, %2$I.%3$I', found.place, names[1], names[2] || '_refine');
    IF jsonb_array_length(found.specification -> 'recursive') > 0 THEN
        EXECUTE format('DROP VIEW IF EXISTS %I.%I', names[1], names[2] || '_objects');
    END IF;
    EXECUTE format('DROP FUNCTION IF EXISTS %I.%I()', names[1], names[2] || '_feed');
    PERFORM easeml.request('drop_task', jsonb_build_object('task', task, 'cascade', cascade));
END
$$;
COMMENT ON FUNCTION easeml.drop_task(text, boolean) IS 'Removes a task with its examples, its views and its versions. '
    'Refuses if it has runs, unless cascade => true, which removes them, too.';

CREATE OR REPLACE FUNCTION easeml.infer_output(
    dataset text,
    given text,
    inputs bytea,
    trial_id bigint,
    OUT answer jsonb,
    OUT failure jsonb
) LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction.task_answers import infer_output
return infer_output(plpy, GD, dataset, given, inputs, trial_id)
$$;
COMMENT ON FUNCTION easeml.infer_output(text, text, bytea, bigint) IS
    'Predicts the output for one input of a task, or returns an error (internal).';

-- for each
--  type     | form    | as_bytes
--  anyarray | numbers | easeml.array_bytes(input::double precision[])
--  bytea    | bytes   | input
--  jsonb    | json    | convert_to(input::text, 'UTF8')
CREATE OR REPLACE FUNCTION easeml.infer(task text, input {type}, trial_id bigint DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found record := easeml.infer_output(task, '{form}', {as_bytes}, trial_id);
BEGIN
    IF found.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(found.failure);
    END IF;
    RETURN found.answer;
END
$$;
-- end for each
COMMENT ON FUNCTION easeml.infer(text, anyarray, bigint) IS
$$Predicts the output for an input given as an array of numbers, with the best model so far: {"output": [...],
"trial_id": ...}. If the outputs are classes, label and probability name the most probable one.
task: your own, or 'tenant.task' of a tenant who lets you use it (easeml.grant_use). trial_id: the trial to ask; by
    default the one that easeml.serving shows.$$;
COMMENT ON FUNCTION easeml.infer(text, bytea, bigint) IS
    'Predicts the output for an input given as bytea of 8-bit values, such as a picture; see the form for arrays.';
COMMENT ON FUNCTION easeml.infer(text, jsonb, bigint) IS
    'Predicts the output for an input given as json: nested arrays of numbers, an object of them by the names of the '
    'tensors, a series as a list of its objects, a tree as objects within objects; see the form for arrays.';
