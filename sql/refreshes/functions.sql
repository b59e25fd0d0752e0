-- Training again on new rows. What reads the source runs as the tenant: the coordinator has a process log in as the
-- tenant for it (docs/design/refreshes.md), and a tenant may call easeml.advance_refresh by itself.

CREATE OR REPLACE FUNCTION easeml.set_refresh(
    dataset text,
    every interval DEFAULT NULL,
    when_drift double precision DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('set_refresh',
        jsonb_build_object('dataset', dataset, 'every', every, 'when_drift', when_drift));
END
$$;
COMMENT ON FUNCTION easeml.set_refresh(text, interval, double precision) IS
$$Makes the service train a dataset again on new rows: it packs a new version of the source, then runs the configs that
were best the last time. The new trial answers only if it is better on rows that came since.
every: how often the service checks the source (1 minute or more; by default a day). when_drift: train only if the psi
    of a column (see easeml.drift) is at least this far beyond chance, for example 0.25; NULL: whenever there are new
    rows.
Both NULL: stop refreshing. The trial that answers now stays deployed until a refresh finds a better one.
easeml.refresh_history shows the outcome of each check, and why.
The service reads the source with your rights, so it must be able to log in as you. If it cannot, easeml.refresh_status
says so; then call easeml.advance_refresh(dataset) yourself from time to time.$$;

CREATE OR REPLACE FUNCTION easeml.run_refresh(dataset text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('run_refresh', jsonb_build_object('dataset', dataset));
END
$$;
COMMENT ON FUNCTION easeml.run_refresh(text) IS
    'Makes the service check the source of a refreshed dataset now, in the background.';

CREATE OR REPLACE FUNCTION easeml.compare_trials(
    dataset text,
    before_trial_id bigint,
    after_trial_id bigint,
    OUT before_value double precision,
    OUT after_value double precision,
    OUT n_rows bigint,
    OUT failure jsonb
) LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.evaluation.comparison import compare_trials
return compare_trials(plpy, GD, dataset, before_trial_id, after_trial_id)
$$;
COMMENT ON FUNCTION easeml.compare_trials(text, bigint, bigint) IS
    'Compares two trials of a dataset on test rows that only the later one''s version has, or if these are few, on '
    'rows that the earlier one did not train on; with the rights of the caller (internal).';

CREATE OR REPLACE FUNCTION easeml.advance_refresh(dataset text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    step jsonb := easeml.request('take_refresh', jsonb_build_object('dataset', dataset));
    outcome jsonb;
    compared record;
BEGIN
    IF step ->> 'step' = 'compare' THEN
        compared := easeml.compare_trials(dataset, (step ->> 'before_trial_id')::bigint,
            (step ->> 'after_trial_id')::bigint);
        RETURN easeml.request('finish_refresh', step || jsonb_build_object('dataset', dataset, 'before_value',
                compared.before_value::text, 'after_value', compared.after_value::text, 'n_rows', compared.n_rows,
            'failure', compared.failure ->> 'message')) #>> '{}';
    ELSIF step ->> 'step' <> 'look' THEN
        RETURN step ->> 'step';
    END IF;
    outcome := easeml.look_for_refresh(dataset, step);
    PERFORM easeml.request('record_refresh',
        outcome || jsonb_build_object('dataset', dataset, 'before_trial_id', step -> 'before_trial_id'));
    RETURN outcome ->> 'outcome';
END
$$;
COMMENT ON FUNCTION easeml.advance_refresh(text) IS
    'Takes the next step of a refreshed dataset if one is due, and returns which: it checks the source, '
    'packs it and begins a run, or compares the best trial of that run with the one that answers. The service calls '
    'it if it can log in as you.';

CREATE OR REPLACE FUNCTION easeml.look_for_refresh(dataset text, step jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted record;
    moved record;
    packed bigint;
    new_run_id bigint;
BEGIN
    SELECT w.* INTO wanted FROM jsonb_to_record(step) w(version integer, when_drift float8, before_dataset_id bigint,
        architectures text[], search_space jsonb, max_epochs integer, metric text);
    -- Times move on by themselves.
    SELECT d.input, d.psi - d.chance_psi AS psi INTO moved FROM easeml.drift(dataset, version => wanted.version) d
    WHERE d.kind <> 'time' ORDER BY d.psi - d.chance_psi DESC LIMIT 1;
    IF moved.psi < wanted.when_drift THEN
        RETURN jsonb_build_object('outcome', 'no drift', 'drifting', moved.input, 'psi', moved.psi,
            'reason', format('no column has moved by %s: %s has moved most, by %s', wanted.when_drift, moved.input,
                round(moved.psi::numeric, 3)));
    END IF;
    BEGIN
        packed := easeml.refresh_dataset(dataset);
        IF NOT EXISTS (SELECT p.partition_number, p.checksum FROM easeml.partitions p WHERE p.dataset_id = packed
            EXCEPT SELECT p.partition_number, p.checksum FROM easeml.partitions p
                WHERE p.dataset_id = wanted.before_dataset_id) THEN
            RAISE EXCEPTION USING errcode = 'ML000', message = 'no new rows';
        END IF;
        new_run_id := easeml.select_models(dataset, wanted.architectures, wanted.search_space, 'grid',
            max_epochs => wanted.max_epochs, metric => wanted.metric);
    EXCEPTION WHEN SQLSTATE 'ML000' THEN  -- the version is taken back
        RETURN jsonb_build_object('outcome', 'no new rows', 'drifting', moved.input, 'psi', moved.psi, 'reason',
            format('the rows to train on are those of version %s', wanted.version));
    END;
    RETURN jsonb_build_object('outcome', 'training', 'drifting', moved.input, 'psi', moved.psi, 'run_id', new_run_id,
        'reason', format('%s has moved most, by %s: run %s trains on the rows of now', moved.input,
            round(moved.psi::numeric, 3), new_run_id));
END
$$;
COMMENT ON FUNCTION easeml.look_for_refresh(text, jsonb) IS 'Checks the source of a dataset, and begins a run if the '
    'dataset should be trained again, with the rights of the caller; returns the outcome (internal).';
