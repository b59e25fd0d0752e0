-- Architectures that administrators register: functions of installed packages, which become further arms of tasks.

CREATE OR REPLACE FUNCTION easeml.template_architectures(template text) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT t.architectures FROM easeml.list_templates() t WHERE t.template = template_architectures.template)
        || ARRAY(SELECT r.architecture FROM easeml.registered_architectures r WHERE r.withdrawn_at IS NULL
            AND template_architectures.template = ANY (r.templates) ORDER BY r.registered_at, r.architecture);
END
$$;
COMMENT ON FUNCTION easeml.template_architectures(text) IS
    'Returns the architectures that may now learn a template: easeml''s own first, then registered ones (internal).';

CREATE OR REPLACE FUNCTION easeml.check_architecture(
    name text,
    entry_point text,
    descriptions jsonb,
    hyperparameters jsonb,
    summary text,
    OUT declaration jsonb,
    OUT failure jsonb
) LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.catalogue.architecture_checks import check_architecture
return check_architecture(plpy, GD, name, entry_point, descriptions, hyperparameters, summary)
$$;
COMMENT ON FUNCTION easeml.check_architecture(text, text, jsonb, jsonb, text) IS
    'Builds an architecture for each described program, trains it on a few rows, stores it and predicts with it; '
    'returns what to register, or an error (internal).';

CREATE OR REPLACE FUNCTION easeml.register_architecture(
    name text,
    entry_point text,
    programs text[],
    hyperparameters jsonb DEFAULT '[]',
    summary text DEFAULT ''
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    descriptions jsonb := '[]';
    described record;
    program text;
    checked record;
    known easeml.registered_architectures;
    n_tasks bigint;
BEGIN
    IF name IS NULL OR entry_point IS NULL OR hyperparameters IS NULL OR summary IS NULL
        OR octet_length(summary) > 1000 THEN
        PERFORM easeml.fail('ML001',
            'name, entry_point, hyperparameters, summary: expected values, and a summary of at most 1000 bytes');
    ELSIF coalesce(cardinality(programs), 0) NOT BETWEEN 1 AND 20 THEN
        PERFORM easeml.fail('ML001', format('programs: expected 1 to 20 programs for which it is tried, got %s',
                coalesce(cardinality(programs), 0)), hint => 'For example {"Input = [16,16,3] Output = [4]"}.');
    END IF;
    PERFORM easeml.check_json('hyperparameters', hyperparameters, 100000, 16);
    FOREACH program IN ARRAY programs LOOP
        described := easeml.describe_program(program, NULL);
        PERFORM easeml.raise_failure(described.failure);
        descriptions := descriptions || described.description;
    END LOOP;
    checked := easeml.check_architecture(name, entry_point, descriptions, hyperparameters, summary);
    PERFORM easeml.raise_failure(checked.failure);
    SELECT r.* INTO known FROM easeml.registered_architectures r WHERE r.architecture = name;
    IF known.architecture IS NOT NULL AND (known.entry_point, known.hyperparameters) IS DISTINCT FROM (entry_point,
        checked.declaration -> 'hyperparameters') THEN
        PERFORM easeml.fail('ML004',
            format('name: %s means %s with other hyperparameters already, and what a name means never changes', name,
                known.entry_point), hint => 'Choose another name.');
    END IF;
    INSERT INTO easeml.registered_architectures (architecture, entry_point, programs, templates, hyperparameters,
        summary, tasks, input_ranks, made_for)
    SELECT name, entry_point, programs, d.templates, checked.declaration -> 'hyperparameters', summary,
        d.tasks, d.input_ranks, d.made_for
    FROM jsonb_to_record(checked.declaration) d(templates text[], tasks text[], input_ranks integer[], made_for text[])
    ON CONFLICT (architecture) DO UPDATE SET withdrawn_at = NULL, registered_at = excluded.registered_at,
        registered_by = excluded.registered_by, programs = excluded.programs, templates = excluded.templates,
        summary = excluded.summary, tasks = excluded.tasks, input_ranks = excluded.input_ranks,
        made_for = excluded.made_for;
    -- The service checks tasks that changed. These now count as changed, because they get another arm.
    -- A task that somebody has locked gets it when it is next fed, so that no tenant's open transaction keeps the tasks
    -- of others locked.
    UPDATE easeml.tasks t SET n_seen_changes = -1 WHERE t.task_id IN (SELECT w.task_id FROM easeml.tasks w
        WHERE w.template IN (SELECT jsonb_array_elements_text(checked.declaration -> 'templates'))
            FOR NO KEY UPDATE SKIP LOCKED);
    GET DIAGNOSTICS n_tasks = ROW_COUNT;
    RAISE NOTICE 'architecture %: %; % task(s) of that kind', name,
        (SELECT string_agg(t, ', ') FROM jsonb_array_elements_text(checked.declaration -> 'templates') t), n_tasks;
END
$$;
COMMENT ON FUNCTION easeml.register_architecture(text, text, text[], jsonb, text) IS
$$Registers an architecture from a package that is installed in the server's Python environment (administrators only).
Every task of a kind that it fits gets it as another arm, existing tasks included.
name: lower-case letters, digits and _; a name never changes its meaning. entry_point: package.module:function. The
    package must declare it among its entry points in the group easeml.architectures; nothing else is imported.
It is called as function(input_shape, n_outputs, **hyperparameters) and returns a torch.nn.Module from (n, *input_shape)
to (n, n_outputs). programs: such as 'Input = [16,16,3] Output = [4]'; for each it is built without a network, trained
on a few rows, stored and asked. Tasks of the same kinds (easeml.templates) get the architecture.
hyperparameters: a json list of objects with name, kind (float, integer, categorical, integers), default, low and high
    or choices, and optionally log, search, summary, as easeml.architectures shows them for easeml's own.
Each network also has the hyperparameters of training, such as learning_rate. easeml.withdraw_architecture withdraws
it.$$;

CREATE OR REPLACE FUNCTION easeml.withdraw_architecture(name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE easeml.registered_architectures r SET withdrawn_at = clock_timestamp()
    WHERE r.architecture = name AND r.withdrawn_at IS NULL;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('there is no registered architecture %s', quote_nullable(name)),
            hint => 'SELECT architecture FROM easeml.registered_architectures WHERE withdrawn_at IS NULL lists them.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.withdraw_architecture(text) IS 'Withdraws a registered architecture: later runs cannot use '
    'it. Trials that it has trained still answer, so keep its package installed (administrators only).';
