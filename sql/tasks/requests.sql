-- What easeml does with tasks for tenants, with the rights of easeml_owner: behind easeml.requests, for a proven
-- caller.

CREATE OR REPLACE FUNCTION easeml.describe_program(program text, storage text, OUT description jsonb, OUT failure jsonb)
LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.templates.storage import describe_program
from easeml_plpy.server.entry_points import answered_by
return answered_by(plpy, describe_program, program, storage)
$$;
COMMENT ON FUNCTION easeml.describe_program(text, text) IS 'Returns the columns, the task and the template of a '
    'program as a json object, or an error with line and column (internal).';

CREATE OR REPLACE FUNCTION easeml.task_of(caller name, tenant name, task text) RETURNS easeml.tasks
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.tasks;
BEGIN
    SELECT t.* INTO found FROM easeml.tasks t WHERE t.tenant = task_of.tenant AND t.task_name = task_of.task;
    IF found.task_id IS NULL THEN
        PERFORM easeml.fail('ML003',
            format('there is no task %s of role %s', quote_nullable(task), quote_ident(caller)),
            hint => coalesce(easeml.near_names(task, (SELECT array_agg(t.task_name) FROM easeml.tasks t
                        WHERE t.tenant = task_of.tenant)), 'Make one with easeml.create_task(name, program, schema).'));
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.task_of(name, name, text) IS
    'Returns a tenant''s task, as far as you may see it, or raises an error that lists the tasks (internal).';

CREATE OR REPLACE FUNCTION easeml.check_task_rules(
    run_after_examples integer,
    run_after_minutes double precision,
    run_options jsonb
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    legal text[] := '{architectures,search_space,procedure,n_configs,max_epochs,metric,max_seconds,'
        'seed,procedure_options,allocation}';
    unknown text;
BEGIN
    IF run_after_examples < 1 THEN
        PERFORM easeml.fail('ML001',
            format('run_after_examples: expected 1 or more, or NULL (never), got %s', run_after_examples));
    ELSIF NOT (run_after_minutes >= 0 AND run_after_minutes < 1e9) THEN
        PERFORM easeml.fail('ML001',
            format('run_after_minutes: expected 0 or more, or NULL (never), got %s', run_after_minutes));
    ELSIF jsonb_typeof(run_options) IS DISTINCT FROM 'object' THEN
        PERFORM easeml.fail('ML001', 'run_options: expected a json object of arguments of easeml.select_models',
            hint => 'For example {"max_seconds": 300}.');
    END IF;
    PERFORM easeml.check_json('run_options', run_options, 100000, 32);
    SELECT k INTO unknown FROM jsonb_object_keys(run_options) k WHERE k <> ALL (legal) LIMIT 1;
    IF FOUND THEN
        PERFORM easeml.fail('ML001', format('run_options: there is no option %s', quote_literal(unknown)),
            hint => format('Choose from: %s.', array_to_string(legal, ', ')));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_task_rules(integer, double precision, jsonb) IS
    'Refuses rules under which no run can begin (internal).';

CREATE OR REPLACE FUNCTION easeml.check_classes(classes text[], description jsonb) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n_wanted integer := (description ->> 'n_outputs')::integer;
BEGIN
    IF description ->> 'task' = 'regression' THEN
        IF classes IS NOT NULL THEN
            PERFORM easeml.fail('ML001', 'classes: a number or a tensor comes out, which has no classes',
                hint => 'With an output Tensor[3] there are three classes.');
        END IF;
        RETURN NULL;
    ELSIF classes IS NULL THEN
        RETURN ARRAY(SELECT i::text FROM generate_series(0, n_wanted - 1) i);
    ELSIF array_ndims(classes) > 1 OR cardinality(classes) <> n_wanted THEN
        PERFORM easeml.fail('ML001',
            format('classes: expected a list of %s names, as many as the output has numbers, got %s',
                n_wanted, cardinality(classes)));
    ELSIF EXISTS (SELECT FROM unnest(classes) c WHERE c IS NULL OR c = '' OR length(c) > 200)
        OR (SELECT count(DISTINCT c) FROM unnest(classes) c) < n_wanted THEN
        PERFORM easeml.fail('ML001', 'classes: expected names that differ, of 1 to 200 characters');
    END IF;
    RETURN classes;
END
$$;
COMMENT ON FUNCTION easeml.check_classes(text[], jsonb) IS
    'Returns the names of the classes of a task: as given, or the numbers from 0 (internal).';

CREATE OR REPLACE FUNCTION easeml.task_arms(description jsonb) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT array_agg(f.architecture ORDER BY a.place)
        FROM easeml.fitting_architectures(description ->> 'task',
            ARRAY(SELECT jsonb_array_elements_text(description -> 'input_shape')::integer),
            (description ->> 'n_outputs')::integer, output_shape =>
                ARRAY(SELECT jsonb_array_elements_text(nullif(description -> 'output_shape', 'null'))::integer),
            n_links => (description ->> 'n_links')::integer) f
        JOIN unnest(easeml.template_architectures(description ->> 'template')) WITH ORDINALITY a(architecture,
            place) USING (architecture) WHERE f.misfit IS NULL);
END
$$;
COMMENT ON FUNCTION easeml.task_arms(jsonb) IS
    'Returns the architectures of the template that fit the sizes of a task (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_create_task(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted record;
    described record;
    task easeml.tasks;
    made_id bigint := nextval('easeml.tasks_task_id_seq');
    arms text[];
BEGIN
    SELECT w.* INTO wanted FROM jsonb_to_record(arguments) w(name text, program text, schema text, classes text[],
        storage text, run_after_examples integer,
        run_after_minutes float8, run_options jsonb, validation_fraction float8, test_fraction float8,
        seed bigint, n_partitions integer);
    PERFORM easeml.check_task(asker, wanted.name, wanted.schema, wanted.validation_fraction,
        wanted.test_fraction, wanted.n_partitions);
    PERFORM easeml.check_task_rules(wanted.run_after_examples, wanted.run_after_minutes, wanted.run_options);
    described := easeml.describe_program(wanted.program, wanted.storage);
    PERFORM easeml.raise_failure(described.failure);
    arms := easeml.task_arms(described.description);
    IF arms IS NULL THEN
        PERFORM easeml.fail('ML004',
            format('program: no installed architecture does %s of this size', described.description ->> 'workload'),
            hint => 'SELECT * FROM easeml.templates says what may learn what.');
    END IF;
    INSERT INTO easeml.tasks (task_id, tenant, task_name, program, template, examples, place, specification, classes,
        run_after_examples, run_after_minutes, run_options) OVERRIDING SYSTEM VALUE
    VALUES (made_id, asker, wanted.name, described.description ->> 'program', described.description ->> 'template',
        format('easeml_tasks.task_%s', made_id), format('%I.%I', wanted.schema, wanted.name),
        described.description || jsonb_build_object('validation_fraction', wanted.validation_fraction, 'test_fraction',
            wanted.test_fraction, 'seed', wanted.seed, 'n_partitions', wanted.n_partitions),
        easeml.check_classes(wanted.classes, described.description), wanted.run_after_examples,
        wanted.run_after_minutes, wanted.run_options)
    RETURNING * INTO task;
    PERFORM easeml.make_examples(caller, task);
    RETURN to_jsonb(task) || jsonb_build_object('arms', arms, 'workload', described.description ->> 'workload');
END
$$;
COMMENT ON FUNCTION easeml.perform_create_task(name, name, jsonb) IS
    'Makes a task with its table of examples, for easeml.create_task (internal).';

CREATE OR REPLACE FUNCTION easeml.check_task(
    asker name,
    name text,
    schema text,
    validation_fraction double precision,
    test_fraction double precision,
    n_partitions integer
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF name IS NULL OR btrim(name) = '' OR octet_length(name) > 50 THEN
        PERFORM easeml.fail('ML001', format('name: expected 1 to 50 bytes, got %s', quote_nullable(left(name, 100))),
            hint => 'The name is also that of a view in your schema.');
    ELSIF schema IS NULL OR octet_length(schema) > 63 THEN
        PERFORM easeml.fail('ML001',
            format('schema: expected the name of a schema, got %s', quote_nullable(left(schema, 100))));
    ELSIF NOT (validation_fraction > 0 AND test_fraction > 0
        AND validation_fraction + test_fraction < 1) IS NOT FALSE THEN
        PERFORM easeml.fail('ML001', format('validation_fraction and test_fraction: expected numbers above 0 whose sum '
                'is below 1, got %s and %s', validation_fraction, test_fraction));
    ELSIF n_partitions NOT BETWEEN 1 AND 1000 THEN
        PERFORM easeml.fail('ML001',
            format('n_partitions: expected 1 to 1000, or NULL (by size), got %s', n_partitions));
    ELSIF EXISTS (SELECT FROM easeml.tasks t WHERE t.tenant = asker AND t.task_name = name) THEN
        PERFORM easeml.fail('ML001', format('you have a task %s already', quote_literal(name)),
            hint => format('Remove it with easeml.drop_task(%L).', name));
    ELSIF EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = asker AND d.dataset_name = name) THEN
        PERFORM easeml.fail('ML001', format('you have a dataset %s already, and a task is a dataset of its name',
                quote_literal(name)), hint => 'Choose another name.');
    ELSIF (SELECT count(*) FROM easeml.tasks t WHERE t.tenant = asker) >= 1000 THEN
        PERFORM easeml.fail('ML015', 'you have 1000 tasks, the most that a tenant may have',
            hint => 'Remove one with easeml.drop_task.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_task(name, text, text, double precision, double precision, integer) IS
    'Refuses a task that cannot be made (internal).';

CREATE OR REPLACE FUNCTION easeml.tensor_column(entry jsonb, is_required boolean) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I %s%s CONSTRAINT %I CHECK (%s)', i.column, i.type,
        CASE WHEN is_required THEN ' NOT NULL' ELSE '' END, format('%s is %s', i.column, i.text),
        CASE WHEN i.type = 'bytea' THEN format('octet_length(%I) = %s', i.column, i.n_values)
            -- A place for each object, or NULL: the constraint of the table says which are legal.
            WHEN i.role = 'link' THEN format('array_dims(%1$I) = format(''[1:%%s]'', cardinality(%1$I))', i.column)
            -- Each is one pass over the array; && finds no NULL. Of a series or tree the first size is the number of
            -- its objects.
            WHEN i.role = 'object' THEN format('cardinality(%1$I) BETWEEN %2$s AND %3$s AND array_dims(%1$I) '
                '= format(''[1:%%s]'', cardinality(%1$I) / %2$s) || %4$L AND num_nulls(VARIADIC %1$I) = 0 AND NOT '
                '%1$I && ''{NaN,Infinity,-Infinity}''',
                i.column, i.n_values, i.n_values * i.most_objects,
                (SELECT string_agg(format('[1:%s]', s), '') FROM unnest(i.shape) s))
            -- An empty array has no dimensions at all, so a condition on them alone would be neither true nor false.
            ELSE format('cardinality(%I) = %s AND array_dims(%1$I) = %3$L '
                'AND num_nulls(VARIADIC %1$I) = 0 AND NOT %1$I && ''{NaN,Infinity,-Infinity}''', i.column, i.n_values,
                (SELECT string_agg(format('[1:%s]', s), '') FROM unnest(i.shape) s)) END)
    FROM jsonb_to_record(entry) i("column" text, type text, text text, n_values bigint, shape integer[],
        role text, most_objects bigint)
$$;
COMMENT ON FUNCTION easeml.tensor_column(jsonb, boolean) IS
    'Returns the column of a tensor as SQL writes it, with a constraint on its shape (internal).';

CREATE OR REPLACE FUNCTION easeml.objects_constraint(specification jsonb) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((SELECT format(', CONSTRAINT "every tensor is of as many objects" CHECK (%s)',
                string_agg(format('cardinality(%I) / %s = %s', i ->> 'column', i ->> 'n_values', n.objects), ' AND '))
            FROM jsonb_array_elements(specification -> 'inputs') i
            WHERE i ->> 'role' = 'object' HAVING count(*) > 1), '')
        || coalesce((SELECT format(', CONSTRAINT "links form one tree" CHECK (easeml.is_tree(%s, %s, %s))', n.objects,
                    string_agg(format('%I', i ->> 'column'), ' || '), count(*))
            FROM jsonb_array_elements(specification -> 'inputs') i WHERE i ->> 'role' = 'link' HAVING count(*) > 0), '')
    FROM (SELECT format('(cardinality(%I) / %s)', specification #>> '{inputs,0,column}',
            specification #>> '{inputs,0,n_values}')) n(objects)
$$;
COMMENT ON FUNCTION easeml.objects_constraint(jsonb) IS
    'Returns the constraints of a table of series or trees, as SQL writes them: nothing for other tasks (internal).';

-- Each object links to later ones only, so no cycle is possible and one check of each is enough.
CREATE OR REPLACE FUNCTION easeml.is_tree(n_objects integer, links integer[], n_links integer) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    depths integer[];
    child integer;
BEGIN
    IF NOT coalesce(n_objects BETWEEN 1 AND 10000 AND n_links BETWEEN 1 AND 64
        AND cardinality(links) = n_objects * n_links AND array_ndims(links) = 1, false) THEN
        RETURN false;
    END IF;
    depths := array_fill(0, ARRAY[n_objects]);
    depths[1] := 1;
    FOR place IN 1 .. n_objects LOOP
        IF depths[place] = 0 THEN
            RETURN false;  -- nothing leads to it
        END IF;
        FOR link IN 0 .. n_links - 1 LOOP
            child := links[link * n_objects + place];
            IF child <= place OR child > n_objects OR depths[child] > 0 OR (child > 0 AND depths[place] >= 256) THEN
                RETURN false;
            ELSIF child > 0 THEN
                depths[child] := depths[place] + 1;
            END IF;
        END LOOP;
    END LOOP;
    RETURN true;
END
$$;
COMMENT ON FUNCTION easeml.is_tree(integer, integer[], integer) IS
    'Returns whether links form one tree of objects. They are given for the first field of all objects, then '
    'for the next field. An earlier object must link to each object except the first, exactly once, and there are at '
    'most 256 levels (internal).';

CREATE OR REPLACE FUNCTION easeml.output_type(task easeml.tasks) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN task.classes IS NOT NULL THEN 'text'
        ELSE coalesce(task.specification #>> '{output,type}', 'double precision') END
$$;
COMMENT ON FUNCTION easeml.output_type(easeml.tasks) IS
    'Returns the type of the outputs of a task: text for classes, a number, or that of a tensor (internal).';

CREATE OR REPLACE FUNCTION easeml.make_examples(caller name, task easeml.tasks) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    output jsonb := nullif(task.specification -> 'output', 'null');
    inputs text := (SELECT string_agg(easeml.tensor_column(i, true), ', ')
        FROM jsonb_array_elements(task.specification -> 'inputs') i);
    names text := (SELECT string_agg(format('%I', i ->> 'column'), ', ')
        FROM jsonb_array_elements(task.specification -> 'inputs') i);
    relation text := task.examples;
BEGIN
    EXECUTE format('CREATE TABLE %s (example_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, %s, %s, is_on boolean '
        'NOT NULL DEFAULT true, fed_at timestamptz NOT NULL DEFAULT now()%s)', relation, inputs,
        CASE WHEN output IS NOT NULL THEN easeml.tensor_column(output, false)
            WHEN task.classes IS NULL THEN 'output double precision CONSTRAINT "output is a finite number" CHECK '
                '(output > ''-Infinity'' AND output < ''Infinity'')'
            ELSE format('output text CONSTRAINT "output is one of the classes" CHECK (output = ANY (%L))',
                task.classes) END, easeml.objects_constraint(task.specification));
    -- Numbers compress badly, and packing reads them all.
    EXECUTE (SELECT format('ALTER TABLE %s %s', relation,
            string_agg(format('ALTER %I SET STORAGE EXTERNAL', i ->> 'column'), ', '))
        FROM jsonb_array_elements((task.specification -> 'inputs') || coalesce(output, '[]')) i);
    -- An INSERT into the view is one of each row here: of those a few look.
    EXECUTE format('CREATE TRIGGER example_bytes BEFORE INSERT ON %s FOR '
        'EACH STATEMENT WHEN ((pg_trigger_depth() = 0 OR random() < 0.01) AND easeml.is_bound_by_limits(current_user)) '
        'EXECUTE FUNCTION easeml.check_example_limit()', relation);
    -- Privileges on columns leave no way to lock the table; a fed example stays unchanged, except for its switch.
    EXECUTE format('GRANT SELECT, INSERT (%s, output), UPDATE (is_on) ON %s TO %I', names, relation, caller);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO easeml_admin', relation);
END
$$;
COMMENT ON FUNCTION easeml.make_examples(name, easeml.tasks) IS
    'Makes the table of the examples of a task, with constraints on their shape (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_alter_task(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    task easeml.tasks := easeml.task_of(caller, asker, arguments ->> 'task');
    wanted record;
BEGIN
    SELECT w.* INTO wanted
    FROM jsonb_to_record(arguments) w(run_after_examples integer, run_after_minutes float8, run_options jsonb);
    wanted.run_options := coalesce(wanted.run_options, task.run_options);
    PERFORM easeml.check_task_rules(wanted.run_after_examples, wanted.run_after_minutes, wanted.run_options);
    UPDATE easeml.tasks t SET run_after_examples = wanted.run_after_examples,
        run_after_minutes = wanted.run_after_minutes, run_options = wanted.run_options,
        n_seen_changes = -1, not_before = NULL
    WHERE t.task_id = task.task_id;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_alter_task(name, name, jsonb) IS
    'Changes when runs of a task begin, for easeml.alter_task (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_run_task(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    task easeml.tasks := easeml.task_of(caller, asker, arguments ->> 'task');
BEGIN
    UPDATE easeml.tasks t SET wanted_at = clock_timestamp(), not_before = NULL WHERE t.task_id = task.task_id;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_run_task(name, name, jsonb) IS
    'Asks for a run of a task, for easeml.run_task (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_drop_task(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    task easeml.tasks := easeml.task_of(caller, asker, arguments ->> 'task');
    n_runs bigint := (SELECT count(*) FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
        WHERE d.tenant = asker AND d.dataset_name = task.task_name);
BEGIN
    IF n_runs > 0 AND NOT (arguments ->> 'cascade')::boolean THEN
        PERFORM easeml.fail('ML004',
            format('task %s has %s run(s), which would be lost with it', quote_literal(task.task_name), n_runs),
            hint => format('To remove them all: SELECT easeml.drop_task(%s, cascade => true).',
                quote_literal(task.task_name)));
    END IF;
    DELETE FROM easeml.tasks t WHERE t.task_id = task.task_id;
    IF EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = asker AND d.dataset_name = task.task_name) THEN
        PERFORM easeml.perform_drop_dataset(caller, asker,
            jsonb_build_object('dataset', task.task_name, 'cascade', true));
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS %s', task.examples);
    RETURN to_jsonb(task);
END
$$;
COMMENT ON FUNCTION easeml.perform_drop_task(name, name, jsonb) IS
    'Removes a task with its examples, for easeml.drop_task (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_label_examples(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    task easeml.tasks := easeml.task_of(caller, asker, arguments ->> 'task');
    n_labelled bigint;
BEGIN
    -- What has an output keeps it: only the labels of what had none are written.
    EXECUTE format('UPDATE %s e SET output = l.output::%s FROM jsonb_to_recordset($1) l(example_id bigint, output '
        'text) WHERE e.example_id = l.example_id AND e.output IS NULL',
        task.examples, easeml.output_type(task)) USING arguments -> 'labels';
    GET DIAGNOSTICS n_labelled = ROW_COUNT;
    RETURN to_jsonb(n_labelled);
END
$$;
COMMENT ON FUNCTION easeml.perform_label_examples(name, name, jsonb) IS
    'Writes the outputs that labelling functions gave to examples without one (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_set_labelling_function(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    task easeml.tasks := easeml.task_of(caller, asker, arguments ->> 'task');
BEGIN
    IF (arguments ->> 'is_added')::boolean THEN
        IF task.specification #>> '{output,type}' IS NOT NULL THEN
            PERFORM easeml.fail('ML004',
                format('task %s: tensors come out, and labelling functions answer with classes and numbers',
                    quote_literal(task.task_name)));
        ELSIF (SELECT count(*) FROM easeml.labelling_functions f WHERE f.task_id = task.task_id) >= 20 THEN
            PERFORM easeml.fail('ML015', format('task %s has 20 labelling functions, the most that it may have',
                    quote_literal(task.task_name)), hint => 'Take one off with easeml.remove_labelling_function.');
        ELSIF octet_length(arguments ->> 'function') > 200 THEN
            PERFORM easeml.fail('ML001', 'function: expected a name of at most 200 bytes');
        END IF;
        INSERT INTO easeml.labelling_functions (task_id, tenant, function)
        VALUES (task.task_id, asker, arguments ->> 'function') ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM easeml.labelling_functions f WHERE f.task_id = task.task_id
            AND f.function = arguments ->> 'function';
        IF NOT FOUND THEN
            PERFORM easeml.fail('ML003', format('task %s has no labelling function %s', quote_literal(task.task_name),
                    quote_nullable(arguments ->> 'function')));
        END IF;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_set_labelling_function(name, name, jsonb) IS
    'Adds a labelling function to a task, or takes it off (internal).';
