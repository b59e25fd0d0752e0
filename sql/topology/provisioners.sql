-- Provisioners: what starts and stops the instances of planned runs. Administrators register them.

CREATE OR REPLACE FUNCTION easeml.check_program(name text, program text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF program IS NULL OR cardinality(program) NOT BETWEEN 1 AND 20 OR array_ndims(program) <> 1 OR program[1] IS NULL
        OR program[1] !~ '^/' OR array_position(program, NULL) IS NOT NULL
        OR EXISTS (SELECT FROM unnest(program) w WHERE length(w) > 1000) THEN
        PERFORM easeml.fail('ML001', format('%s: expected the path of a program and its arguments, 1 to 20 texts of at '
                'most 1000 characters, got %s', name, left(coalesce(program::text, 'NULL'), 200)),
            hint => format('The path begins with /, on the machine of the coordinator: %s => '
                '''{/opt/easeml/instance,start}''. There is no shell.', name));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_program(text, text[]) IS
    'Refuses anything but a program with its arguments (internal).';

-- Not SECURITY DEFINER: the row is inserted with the rights of the caller, and only members of
-- pg_execute_server_program have that right.
CREATE OR REPLACE FUNCTION easeml.create_provisioner(
    provisioner text,
    price_list text,
    start_program text[],
    probe_program text[],
    stop_program text[],
    max_slots integer DEFAULT NULL,
    timeout_seconds double precision DEFAULT 60,
    ready_seconds double precision DEFAULT 900
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    list easeml.price_lists;
BEGIN
    IF NOT pg_has_role('pg_execute_server_program', 'USAGE') THEN
        PERFORM easeml.fail('ML004', format('role %s may not let programs run', quote_ident(current_user)),
            hint => 'They run as the coordinator''s user. A superuser may allow it: GRANT '
                'pg_execute_server_program TO role.');
    ELSIF coalesce(provisioner, '') = '' OR length(provisioner) > 200 OR provisioner = 'local' THEN
        PERFORM easeml.fail('ML001',
            format('provisioner: expected a name of 1 to 200 characters that is not local, got %s',
                quote_nullable(provisioner)));
    ELSIF NOT coalesce(timeout_seconds > 0 AND timeout_seconds <= 86400 AND ready_seconds > 0
        AND ready_seconds <= 86400, false) THEN
        PERFORM easeml.fail('ML001',
            format('timeout_seconds, ready_seconds: expected more than 0 and at most 86400, got %s and %s',
                timeout_seconds, ready_seconds));
    ELSIF max_slots < 1 THEN
        PERFORM easeml.fail('ML001', format('max_slots: expected at least 1, got %s', max_slots),
            hint => 'Leave it out for no limit.');
    END IF;
    PERFORM easeml.check_program('start_program', start_program), easeml.check_program('probe_program', probe_program),
        easeml.check_program('stop_program', stop_program);
    SELECT l.* INTO list FROM easeml.price_lists l WHERE l.price_list = create_provisioner.price_list;
    IF list.price_list IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no price list %s', quote_nullable(price_list)),
            hint => 'Make it first: easeml.create_price_list.');
    ELSIF list.is_local THEN
        PERFORM easeml.fail('ML004', format('price list %s is of this server''s own slots', price_list),
            hint => 'Name one whose instances the programs start.');
    END IF;
    INSERT INTO easeml.provisioners (provisioner, price_list, start_program, probe_program, stop_program, max_slots,
        timeout_seconds, ready_seconds)
    VALUES (provisioner, price_list, start_program, probe_program, stop_program, max_slots, timeout_seconds,
        ready_seconds) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML004', format('there is a provisioner %s, or one for price list %s, already',
                quote_literal(provisioner), quote_literal(price_list)),
            hint => 'Drop it first with easeml.drop_provisioner.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.create_provisioner(text, text, text[], text[], text[], integer,
    double precision, double precision) IS
$$Registers programs that start, probe and stop the instances of a price list, so that planned runs can use it. They run
as the coordinator's user, without a shell:
only members of pg_execute_server_program may register them. A program gets the environment variables EASEML_REQUEST_ID
(the same for all calls about an instance), EASEML_INSTANCE_TYPE, EASEML_N_SLOTS and EASEML_DEVICE_KIND, and
prints a line of JSON: {"status": "starting"}, {"status": "ready", "n_slots": 4, "device": "cuda:0"} or {"status":
"gone"}. A repeated start must start nothing again, and stopping what is gone must succeed.
max_slots: limit on the slots of all its instances. timeout_seconds: limit for one call. ready_seconds: limit until an
    instance is ready. easeml.provisioner_calls keeps the programs' output.$$;

CREATE OR REPLACE FUNCTION easeml.limit_provisioner(provisioner text, max_slots integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF max_slots NOT BETWEEN 1 AND 1000 THEN
        PERFORM easeml.fail('ML001', format('max_slots: expected 1 to 1000, got %s', max_slots),
            hint => 'NULL: of local as many as there are, else any number.');
    ELSIF provisioner IS DISTINCT FROM 'local'
        AND NOT EXISTS (SELECT FROM easeml.provisioners p WHERE p.provisioner = limit_provisioner.provisioner) THEN
        PERFORM easeml.fail('ML003', format('there is no provisioner %s', quote_nullable(provisioner)),
            hint => 'local is this server; easeml.create_provisioner makes others.');
    END IF;
    UPDATE easeml.provisioners p SET max_slots = limit_provisioner.max_slots
    WHERE p.provisioner = limit_provisioner.provisioner;
    IF NOT FOUND THEN
        INSERT INTO easeml.provisioners (provisioner, max_slots)
        VALUES (limit_provisioner.provisioner, limit_provisioner.max_slots);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.limit_provisioner(text, integer) IS
$$Limits how many slots all instances of a provisioner may have;
for local, how many slots this server may have when planned runs add some. Without a limit for local,
    they only take slots that exist.
NULL: no limit; for local, the state before any limit. Planned runs under way give slots back when they are planned
    again.$$;

CREATE OR REPLACE FUNCTION easeml.drop_provisioner(provisioner text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.provisioners;
    users text;
BEGIN
    SELECT p.* INTO found FROM easeml.provisioners p WHERE p.provisioner = drop_provisioner.provisioner;
    IF found.start_program IS NULL THEN
        PERFORM easeml.fail('ML003',
            format('there is no provisioner %s that could be dropped', quote_nullable(provisioner)),
            hint => 'Those that easeml.create_provisioner has made can be; local is this server.');
    END IF;
    SELECT string_agg(DISTINCT u.run_id::text, ', ') INTO users FROM (
        SELECT r.run_id FROM easeml.runs r WHERE r.price_list = found.price_list AND r.status IN ('queued', 'running')
        UNION ALL SELECT i.run_id FROM easeml.instances i WHERE i.provisioner = found.provisioner
            AND i.status IN ('requested', 'ready', 'releasing')) u;
    IF users IS NOT NULL THEN
        PERFORM easeml.fail('ML004', format('provisioner %s is in use by run(s) %s', provisioner, users),
            hint => 'Wait for them, or cancel them: SELECT easeml.cancel(run_id). Their instances are stopped then.');
    END IF;
    DELETE FROM easeml.provisioners p WHERE p.provisioner = found.provisioner;
END
$$;
COMMENT ON FUNCTION easeml.drop_provisioner(text) IS
    'Drops a provisioner. Refuses while a run or an instance needs it.';
