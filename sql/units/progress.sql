-- Opening a unit, and counting it as done: each step refuses a unit that is no longer due. All run in the session of
-- the slot.

-- As long as anybody's old snapshot keeps all versions of a row, an index finds the newest by going through all of
-- them, and each unit adds some. So a session remembers where the rows of its unit lay when it last saw them, and looks
-- on that page first. A session that finds nothing there looks once more, because another one changed the row just
-- then. It looks at the whole page, which removes dead versions from it: to fetch one place does not, and the row would
-- go from page to page.
CREATE OR REPLACE FUNCTION easeml.trial_place(trial_id bigint) RETURNS tid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    page bigint := substring(current_setting('easeml.trial_place', true) FROM '[0-9]+');
    place tid;
BEGIN
    IF page IS NOT NULL THEN
        -- With + 0, so that no index serves.
        SELECT t.ctid INTO place FROM easeml.trials t WHERE t.ctid >= format('(%s,0)', page)::tid
            AND t.ctid < format('(%s,0)', page + 1)::tid AND t.trial_id + 0 = trial_place.trial_id;
    END IF;
    IF place IS NULL THEN
        SELECT t.ctid INTO place FROM easeml.trials t WHERE t.trial_id = trial_place.trial_id;
    END IF;
    RETURN place;
END
$$;
COMMENT ON FUNCTION easeml.trial_place(bigint) IS
    'Returns where the row of a trial lies, first looking where this session last saw it (internal).';

CREATE OR REPLACE FUNCTION easeml.slot_place(slot_id integer) RETURNS tid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    page bigint := substring(current_setting('easeml.slot_place', true) FROM '[0-9]+');
    place tid;
BEGIN
    IF page IS NOT NULL THEN
        SELECT s.ctid INTO place FROM easeml.slots s WHERE s.ctid >= format('(%s,0)', page)::tid
            AND s.ctid < format('(%s,0)', page + 1)::tid AND s.slot_id + 0 = slot_place.slot_id;
    END IF;
    IF place IS NULL THEN
        SELECT s.ctid INTO place FROM easeml.slots s WHERE s.slot_id = slot_place.slot_id;
    END IF;
    RETURN place;
END
$$;
COMMENT ON FUNCTION easeml.slot_place(integer) IS
    'Returns where the row of a slot lies, first looking where this session last saw it (internal).';

CREATE OR REPLACE FUNCTION easeml.open_unit(
    unit jsonb,
    OUT architecture text,
    OUT config jsonb,
    OUT max_epochs integer,
    OUT checkpoint_id bigint,
    OUT best_checkpoint_id bigint,
    OUT best_epoch integer,
    OUT best_metric_value double precision,
    OUT best_loss double precision,
    OUT metric text,
    OUT dataset_id bigint,
    OUT n_partitions integer,
    OUT train_rows bigint[],
    OUT device text,
    OUT n_threads integer,
    OUT memory_limit_bytes bigint,
    OUT started_at timestamptz
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    trial easeml.trials;
    due record;
    place tid;
    page bigint := substring(current_setting('easeml.trial_place', true) FROM '[0-9]+');
    rank integer := coalesce((unit #>> '{gang,rank}')::integer, 0);
    first_step integer := (unit ->> 'step')::integer - rank;
BEGIN
    -- If an open transaction of somebody else has locked the rows, the unit could not be recorded in the end; it is
    -- better to know that before the work. Of a gang only the first rank asks, or the ranks would hold the row from one
    -- another. Both rows are looked for on the remembered page and, if they are elsewhere by now, on the page that the
    -- index names: what the functions above do, without their calls, which take longer than a look.
    FOR look IN 1..3 LOOP
        IF rank = 0 THEN
            SELECT t AS trial, t.ctid AS place INTO due FROM easeml.trials t
            WHERE t.ctid >= ('(' || page || ',0)')::tid AND t.ctid < ('(' || page + 1 || ',0)')::tid
                AND t.trial_id + 0 = (unit ->> 'trial_id')::bigint FOR NO KEY UPDATE NOWAIT;
        ELSE
            SELECT t AS trial, t.ctid AS place INTO due FROM easeml.trials t
            WHERE t.ctid = easeml.trial_place((unit ->> 'trial_id')::bigint);
        END IF;
        EXIT WHEN FOUND;
        SELECT substring(t.ctid::text FROM '[0-9]+') INTO page FROM easeml.trials t
        WHERE t.trial_id = (unit ->> 'trial_id')::bigint;
    END LOOP;
    trial := due.trial;
    place := due.place;
    IF trial.trial_id IS NULL THEN
        PERFORM easeml.fail('ML003', format('trial %s is gone', unit ->> 'trial_id'));
    ELSIF trial.n_steps_done <> first_step OR trial.status NOT IN ('waiting', 'running') THEN
        PERFORM easeml.fail('ML006', format('trial %s is %s with %s steps done: step %s is not due',
            trial.trial_id, trial.status, trial.n_steps_done, unit ->> 'step'));
    END IF;
    -- This transaction writes only what is displayed, and a crash may lose that: do not wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    started_at := clock_timestamp();
    -- Schedules span the epochs of the run, also where its end cut this trial short.
    SELECT trial.architecture, trial.config, r.max_epochs, trial.checkpoint_id,
        trial.best_checkpoint_id, trial.best_epoch,
        trial.best_metric_value, trial.best_loss, r.metric, d.dataset_id, d.n_partitions,
        (SELECT array_agg(p.n_train_rows ORDER BY p.partition_number) FROM easeml.partitions p
            WHERE p.dataset_id = d.dataset_id)
    INTO architecture, config, max_epochs, checkpoint_id, best_checkpoint_id, best_epoch, best_metric_value, best_loss,
        metric, dataset_id, n_partitions, train_rows
    FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) WHERE r.run_id = trial.run_id;
    IF trial.status = 'waiting' AND rank = 0 THEN
        UPDATE easeml.trials t SET status = 'running', started_at = coalesce(t.started_at, open_unit.started_at)
        WHERE t.trial_id = trial.trial_id AND t.status = 'waiting' RETURNING t.ctid INTO place;
    END IF;
    PERFORM set_config('easeml.trial_place', place::text, false);
    page := substring(current_setting('easeml.slot_place', true) FROM '[0-9]+');
    FOR look IN 1..3 LOOP
        UPDATE easeml.slots s SET trial_id = trial.trial_id, kind = unit ->> 'kind',
            epoch = (unit ->> 'epoch')::integer,
            partition_number = (unit ->> 'partition_number')::integer, unit_started_at = open_unit.started_at,
            backend_pid = pg_backend_pid()
        WHERE s.ctid >= ('(' || page || ',0)')::tid AND s.ctid < ('(' || page + 1 || ',0)')::tid
            AND s.slot_id + 0 = (unit ->> 'slot_id')::integer
        RETURNING s.device, s.n_threads, s.memory_limit_bytes, s.ctid INTO device, n_threads, memory_limit_bytes, place;
        EXIT WHEN FOUND;
        SELECT substring(s.ctid::text FROM '[0-9]+') INTO page FROM easeml.slots s
        WHERE s.slot_id = (unit ->> 'slot_id')::integer;
    END LOOP;
    PERFORM set_config('easeml.slot_place', place::text, false);
END
$$;
COMMENT ON FUNCTION easeml.open_unit(jsonb) IS
    'Returns all that a unit needs to know and shows the unit in the row of its slot. Refuses if the trial''s next '
    'step is another one, or an open transaction holds the trial (internal).';

CREATE OR REPLACE FUNCTION easeml.leave_slot(unit jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    place tid;
BEGIN
    FOR look IN 1..2 LOOP
        UPDATE easeml.slots s SET unit_started_at = NULL,
            n_units_done = s.n_units_done + (unit ->> 'kind' <> 'pilot')::integer
        WHERE s.ctid = CASE look WHEN 1 THEN nullif(current_setting('easeml.slot_place', true), '')::tid
            ELSE easeml.slot_place((unit ->> 'slot_id')::integer) END
            AND s.slot_id = (unit ->> 'slot_id')::integer
                AND s.backend_pid = coalesce((unit ->> 'backend_pid')::integer, pg_backend_pid())
            AND s.status <> 'lost'
        RETURNING s.ctid INTO place;
        EXIT WHEN FOUND;
    END LOOP;
    IF place IS NULL THEN
        PERFORM easeml.fail('ML006', format('slot %s was given up or taken away meanwhile: step %s is not recorded',
                unit ->> 'slot_id', unit ->> 'step'));
    END IF;
    PERFORM set_config('easeml.slot_place', place::text, false);
END
$$;
COMMENT ON FUNCTION easeml.leave_slot(jsonb) IS
    'Clears the unit from the row of its slot. Refuses if the slot was given up, so that a stuck unit that wakes up '
    'records nothing (internal).';

-- One version of the row, and a second one where the trial ends or pauses: whether its status may change is asked only
-- of those that change it.
CREATE OR REPLACE FUNCTION easeml.advance(
    unit jsonb,
    seconds double precision DEFAULT 0,
    trained_seconds double precision DEFAULT NULL,
    from_checkpoint_id bigint DEFAULT NULL,
    new_checkpoint_id bigint DEFAULT NULL,
    OUT trial easeml.trials,
    OUT n_partitions bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moved record;
    others jsonb := coalesce(unit #> '{gang,others}', '[]');
    n_steps integer := 1 + jsonb_array_length(others);
    status_after text;
BEGIN
    FOR look IN 1..2 LOOP
        UPDATE easeml.trials t SET n_steps_done = t.n_steps_done + n_steps, slot_seconds = t.slot_seconds + seconds,
            training_seconds = CASE WHEN trained_seconds IS NULL THEN t.training_seconds
                ELSE coalesce(t.training_seconds, 0) + trained_seconds END,
            checkpoint_id = coalesce(new_checkpoint_id, t.checkpoint_id)
        WHERE t.ctid = CASE look WHEN 1 THEN nullif(current_setting('easeml.trial_place', true), '')::tid
            ELSE easeml.trial_place((unit ->> 'trial_id')::bigint) END
            AND t.trial_id = (unit ->> 'trial_id')::bigint
                AND t.n_steps_done = (unit ->> 'step')::integer AND t.status = 'running'
            AND (new_checkpoint_id IS NULL OR t.checkpoint_id IS NOT DISTINCT FROM from_checkpoint_id)
        RETURNING t AS trial, t.ctid AS place INTO moved;
        EXIT WHEN FOUND;
    END LOOP;
    IF moved.place IS NULL THEN
        PERFORM easeml.fail('ML006', format('trial %s was stopped or moved on meanwhile: step %s is not recorded',
                unit ->> 'trial_id', unit ->> 'step'));
    END IF;
    trial := moved.trial;
    SELECT d.n_partitions INTO n_partitions FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
    WHERE r.run_id = trial.run_id;
    status_after := CASE trial.n_steps_done WHEN (2 * trial.max_epochs + 1) * n_partitions THEN 'finished'
        WHEN 2 * trial.target_epochs * n_partitions
            THEN CASE WHEN trial.target_epochs < trial.max_epochs THEN 'paused' END END;
    IF status_after IS NOT NULL THEN
        UPDATE easeml.trials t SET status = status_after,
            finished_at = CASE status_after WHEN 'finished' THEN clock_timestamp() END
        WHERE t.ctid = moved.place RETURNING t AS trial, t.ctid AS place INTO moved;
        trial := moved.trial;
    END IF;
    PERFORM set_config('easeml.trial_place', moved.place::text, false);
    PERFORM easeml.leave_slot(unit);
    PERFORM easeml.leave_slot(unit || other) FROM jsonb_array_elements(others) other
        WHERE other -> 'slot_id' <> unit -> 'slot_id';
END
$$;
COMMENT ON FUNCTION easeml.advance(jsonb, double precision, double precision, bigint, bigint) IS
    'Counts the step of a trial, or the steps of a gang, and clears the rows of their slots; pauses '
    'a trial that reached its target. Returns the trial, and the number of partitions of its dataset. Refuses if the '
    'trial has moved on (internal).';
