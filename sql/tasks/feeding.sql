-- Feeding examples, and labelling them, with the rights of the role that does it: labelling functions never run as the
-- service.

CREATE OR REPLACE FUNCTION easeml.read_examples(
    specification jsonb,
    classes text[],
    examples text,
    OUT found jsonb,
    OUT failure jsonb
) LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.tasks.task_examples import read_examples
return read_examples(plpy, GD, specification, classes, examples)
$$;
COMMENT ON FUNCTION easeml.read_examples(jsonb, text[], text) IS 'Converts json examples to rows of the table of a '
    'task, each with its problem if it has one, or returns an error (internal).';

CREATE OR REPLACE FUNCTION easeml.feed(
    task text,
    examples jsonb,
    on_error text DEFAULT 'refuse',
    OUT n_fed integer,
    OUT n_skipped integer,
    OUT problems text[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.tasks := easeml.find_task(task);
    read record;
    rows jsonb;
    first_id bigint;
BEGIN
    IF on_error IS NULL OR on_error NOT IN ('refuse', 'skip') THEN
        PERFORM easeml.fail('ML001', format('on_error: expected refuse or skip, got %s', quote_nullable(on_error)));
    END IF;
    read := easeml.read_examples(found.specification, found.classes, coalesce(examples, '[]')::text);
    PERFORM easeml.raise_failure(read.failure);
    rows := read.found;
    SELECT count(*) FILTER (WHERE r.row ? 'problem'), (array_agg(format('example %s: %s', r.place, r.row ->> 'problem')
            ORDER BY r.place) FILTER (WHERE r.row ? 'problem'))[:20]
    INTO n_skipped, problems FROM jsonb_array_elements(rows) WITH ORDINALITY r("row", place);
    IF n_skipped > 0 AND on_error = 'refuse' THEN
        PERFORM easeml.fail('ML009', problems[1],
            detail => CASE WHEN n_skipped > 1 THEN format('%s further examples do not fit, either.', n_skipped - 1) END,
            hint => 'Nothing was fed. on_error => ''skip'' leaves such examples out.');
    END IF;
    EXECUTE (SELECT format('WITH fed AS (INSERT INTO %s (%s, output) SELECT %s, (r.row ->> ''output'')::%s FROM '
            'jsonb_array_elements($1) WITH ORDINALITY r("row", place) WHERE NOT r.row ? ''problem'' ORDER BY r.place '
            'RETURNING example_id) SELECT count(*), min(example_id) FROM fed',
            found.examples, string_agg(quote_ident(i.column), ', '),
            string_agg(format('(r.row ->> %L)::%s', i.column, i.type), ', '), easeml.output_type(found))
        FROM jsonb_to_recordset(found.specification -> 'inputs') i("column" text, type text))
            INTO n_fed, first_id USING rows;
    IF EXISTS (SELECT FROM jsonb_array_elements(rows) r WHERE r -> 'output' = 'null') THEN
        -- Older ones without an output have been asked about before.
        PERFORM easeml.label_from(task, first_id, NULL);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.feed(text, jsonb, text) IS
$$Feeds examples to your task: one {"input": ..., "output": ...}, or a list of them. Returns how many were fed and how
many skipped, and why.
input: numbers in nested arrays, or flat; 8-bit values also as hexadecimal text. If the program has several tensors, an
    object with their names as keys.
output: a class, or an output tensor whose largest number marks the class. If the program's output is a number or a
    tensor, that number or tensor. null: labelling functions are asked.
on_error: refuse (names an example that does not fit, and feeds nothing) or skip.$$;

CREATE OR REPLACE FUNCTION easeml.feed(
    task text,
    examples text,
    on_error text DEFAULT 'refuse',
    OUT n_fed integer,
    OUT n_skipped integer,
    OUT problems text[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    fed record;
    given jsonb;
BEGIN
    BEGIN
        given := examples::jsonb;
    EXCEPTION WHEN statement_too_complex THEN
        PERFORM easeml.fail('ML001', 'examples: json is nested too deep', hint => 'Give a series as a list.');
    WHEN invalid_text_representation OR untranslatable_character OR program_limit_exceeded
        OR numeric_value_out_of_range THEN
        PERFORM easeml.fail('ML001', format('examples: expected json, got %s', quote_literal(left(examples, 40))),
            hint => 'For example [{"input": [1, 2], "output": "a"}].');
    END;
    fed := easeml.feed(task, given, on_error);
    n_fed := fed.n_fed;
    n_skipped := fed.n_skipped;
    problems := fed.problems;
END
$$;
COMMENT ON FUNCTION easeml.feed(text, text, text) IS 'Feeds examples given as the text of json: a literal such as '
    '''[{"input": [1, 2], "output": "a"}]'' selects this form.';

CREATE OR REPLACE FUNCTION easeml.feed(task text, input anyarray, output text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.feed(task, jsonb_build_object('input', to_jsonb(input), 'output', output));
END
$$;
COMMENT ON FUNCTION easeml.feed(text, anyarray, text) IS 'Feeds one example, whose input is an array of numbers, with '
    'its class; without a class, labelling functions are asked.';

CREATE OR REPLACE FUNCTION easeml.feed(task text, input anyarray, output double precision) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.feed(task, jsonb_build_object('input', to_jsonb(input), 'output', output));
END
$$;
COMMENT ON FUNCTION easeml.feed(text, anyarray, double precision) IS
    'Feeds one example, whose input is an array of numbers and whose output is a number.';

CREATE OR REPLACE FUNCTION easeml.feed(task text, input bytea, output text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.feed(task, jsonb_build_object('input', encode(input, 'hex'), 'output', output));
END
$$;
COMMENT ON FUNCTION easeml.feed(text, bytea, text) IS
    'Feeds one example, whose input is a bytea of 8-bit values, such as a picture, with its class.';

CREATE OR REPLACE FUNCTION easeml.add_labelling_function(task text, function text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.tasks := easeml.find_task(task);
BEGIN
    PERFORM easeml.request('set_labelling_function',
        jsonb_build_object('task', task, 'is_added', true, 'function', easeml.labelling_function(found, function)));
    PERFORM easeml.label_examples(task);
END
$$;
COMMENT ON FUNCTION easeml.add_labelling_function(text, text) IS
$$Adds a function to a task that returns the output of an input, or NULL if it does not know, and lets it label the
examples without an output.
function: name with schema, such as public.label_by_catalogue. It takes the input columns of the task in their order
    (bytea or real[]), returns a text (a class) or a number, and is IMMUTABLE or STABLE.
It runs with the rights of the role that feeds or labels, in a read-only transaction, and never as the service. If
several functions know an output, that of the oldest counts.$$;

CREATE OR REPLACE FUNCTION easeml.function_names(function text) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names text[];
BEGIN
    BEGIN
        names := parse_ident(function);
    EXCEPTION WHEN invalid_parameter_value THEN
        NULL;  -- refused below, in our words
    END;
    IF cardinality(names) IS DISTINCT FROM 2 THEN
        PERFORM easeml.fail('ML001', format('function: expected a name with its schema, got %s',
                quote_nullable(left(function, 100))), hint => 'For example public.label_by_catalogue.');
    END IF;
    RETURN names;
END
$$;
COMMENT ON FUNCTION easeml.function_names(text) IS
    'Returns the schema and the name that the name of a labelling function says, or refuses it (internal).';

CREATE OR REPLACE FUNCTION easeml.remove_labelling_function(task text, function text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names text[] := easeml.function_names(function);
BEGIN
    PERFORM easeml.request('set_labelling_function',
        jsonb_build_object('task', task, 'is_added', false, 'function', format('%I.%I', names[1], names[2])));
END
$$;
COMMENT ON FUNCTION easeml.remove_labelling_function(text, text) IS 'Removes a labelling function from a task. Its '
    'labels stay; to switch an example off: UPDATE the view name_refine SET is_on = false.';

CREATE OR REPLACE FUNCTION easeml.labelling_function(task easeml.tasks, function text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names text[] := easeml.function_names(function);
    types oidvector := (SELECT string_agg(to_regtype(i ->> 'type')::oid::text, ' ' ORDER BY place)
        FROM jsonb_array_elements(task.specification -> 'inputs') WITH ORDINALITY e(i, place))::oidvector;
    found pg_proc;
BEGIN
    SELECT p.* INTO found FROM pg_proc p WHERE p.pronamespace = to_regnamespace(quote_ident(names[1]))
        AND p.proname = names[2] AND p.proargtypes = types;
    IF found.oid IS NULL THEN
        PERFORM easeml.fail('ML003', format('function: there is no function %s(%s)', function,
                (SELECT string_agg(i ->> 'type', ', ') FROM jsonb_array_elements(task.specification -> 'inputs') i)),
            hint => 'It takes the input columns of the task in their order.'
                || CASE WHEN EXISTS (SELECT FROM easeml.labelling_functions f WHERE f.task_id = task.task_id
                    AND f.function = format('%I.%I', names[1], names[2]))
                THEN format(' If you have dropped it: SELECT easeml.remove_labelling_function(%L, %L);',
                    task.task_name, function) ELSE '' END);
    ELSIF found.prokind <> 'f' OR found.proretset OR found.provolatile = 'v' THEN
        PERFORM easeml.fail('ML004', format('function: %s '
                'may write, or returns no single value: expected a function that is STABLE or IMMUTABLE', function),
            hint => format('ALTER FUNCTION %I.%I STABLE;', names[1], names[2]));
    ELSIF NOT has_function_privilege(found.oid, 'EXECUTE') THEN
        PERFORM easeml.fail('ML004', format('function: role %s may not call %s', quote_ident(current_user), function));
    END IF;
    RETURN format('%I.%I', names[1], names[2]);
END
$$;
COMMENT ON FUNCTION easeml.labelling_function(easeml.tasks, text) IS
    'Returns the name of a labelling function as SQL writes it, or refuses one that does not fit (internal).';

CREATE OR REPLACE FUNCTION easeml.label_from(task text, first_id bigint, max_examples integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.tasks := easeml.find_task(task);
    chosen text[] := ARRAY(SELECT easeml.labelling_function(found, f.function) FROM easeml.labelling_functions f
        WHERE f.task_id = found.task_id ORDER BY f.added_at, f.function);
    columns text := (SELECT string_agg(quote_ident(i ->> 'column'), ', ')
        FROM jsonb_array_elements(found.specification -> 'inputs') i);
    labels jsonb;
    wrong jsonb;
BEGIN
    IF cardinality(chosen) = 0 THEN
        RETURN 0;
    END IF;
    -- In a block with EXCEPTION, a subtransaction, which alone can be made to read only, and ends so: a function of a
    -- function may be VOLATILE.
    BEGIN
        PERFORM set_config('transaction_read_only', 'on', true);
        EXECUTE format('SELECT jsonb_agg(jsonb_build_object(''example_id'', l.example_id, ''output'', l.output)) '
            'FROM (SELECT e.example_id, coalesce(%s) AS output FROM %s e WHERE e.output IS NULL AND e.example_id >= $2 '
            'ORDER BY e.example_id LIMIT $1) l WHERE l.output IS NOT NULL',
            (SELECT string_agg(format('%s(%s)::text', f, columns), ', ' ORDER BY place)
                FROM unnest(chosen) WITH ORDINALITY c(f, place)),
            found.examples) INTO labels USING max_examples, first_id;
    EXCEPTION WHEN read_only_sql_transaction THEN
        PERFORM easeml.fail('ML004', format('a labelling function of task %s wants to write: %s', quote_literal(task),
                SQLERRM), hint => 'It may only read; take it off with easeml.remove_labelling_function.');
    WHEN raise_exception OR plpgsql_error OR external_routine_exception OR data_exception
        OR integrity_constraint_violation OR feature_not_supported
        OR syntax_error_or_access_rule_violation THEN
        PERFORM easeml.fail('ML002',
            format('a labelling function of task %s raised an error: %s', quote_literal(task), SQLERRM),
            hint => format('Nothing was labelled. Mend it (%s), or take it off with easeml.remove_labelling_function.',
                array_to_string(chosen, ', ')));
    END;
    SELECT l INTO wrong FROM jsonb_array_elements(labels) l
    WHERE CASE WHEN found.classes IS NULL
        THEN NOT (l ->> 'output') ~ '^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$'
        ELSE l ->> 'output' <> ALL (found.classes) END LIMIT 1;
    IF wrong IS NOT NULL THEN
        PERFORM easeml.fail('ML009',
            format('a labelling function of task %s gave %s for example %s, which is no output of it',
                quote_literal(task), quote_literal(left(wrong ->> 'output', 100)), wrong ->> 'example_id'),
            hint => coalesce(format('Classes: %s.', array_to_string(found.classes[:10], ', ')),
                'A finite number comes out.'));
    END IF;
    RETURN easeml.request('label_examples', jsonb_build_object('task', task, 'labels', coalesce(labels, '[]')))::bigint;
END
$$;
COMMENT ON FUNCTION easeml.label_from(text, bigint, integer) IS
    'Runs the labelling functions of a task on its oldest examples without an output, from a given one on; returns how '
    'many they labelled. max_examples: NULL means all (internal: use easeml.label_examples).';

CREATE OR REPLACE FUNCTION easeml.label_examples(task text, max_examples integer DEFAULT 10000) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF max_examples IS NULL OR max_examples NOT BETWEEN 1 AND 1000000 THEN
        PERFORM easeml.fail('ML001',
            format('max_examples: expected 1 to 1000000, got %s', coalesce(max_examples::text, 'NULL')));
    END IF;
    RETURN easeml.label_from(task, 1, max_examples);
END
$$;
COMMENT ON FUNCTION easeml.label_examples(text, integer) IS
    'Runs the labelling functions of your task, with your rights, on its oldest max_examples examples without '
    'an output; returns how many they labelled. Labels nothing if a function raises an error, writes, or returns '
    'an output that does not fit.';
