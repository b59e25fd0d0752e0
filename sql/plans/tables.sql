-- Price lists: what slots cost, and how long they take to start. Administrators write them, everybody reads them.

CREATE TABLE IF NOT EXISTS easeml.price_lists (
    price_list text PRIMARY KEY CHECK (length(price_list) BETWEEN 1 AND 200),
    caveat text,
    is_local boolean NOT NULL DEFAULT false,
    is_shipped boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE easeml.price_lists IS 'Price lists by name; easeml.create_price_list writes them.';
COMMENT ON COLUMN easeml.price_lists.caveat IS 'What to know before trusting the figures.';
COMMENT ON COLUMN easeml.price_lists.is_local IS
    'Whether its slots are those of this server: no more than it has, ready at once.';
COMMENT ON COLUMN easeml.price_lists.is_shipped IS 'Whether it came with easeml.';

CREATE TABLE IF NOT EXISTS easeml.instance_types (
    price_list text NOT NULL REFERENCES easeml.price_lists ON DELETE CASCADE,
    instance_type text NOT NULL,
    device_kind text NOT NULL CHECK (device_kind IN ('cpu', 'cuda')),
    n_slots integer NOT NULL CHECK (n_slots BETWEEN 1 AND 4096),
    price_per_hour double precision NOT NULL CHECK (price_per_hour >= 0 AND price_per_hour <= 1e9),
    billed_by text NOT NULL DEFAULT 'second' CHECK (billed_by IN ('second', 'minute')),
    billed_per text NOT NULL DEFAULT 'instance' CHECK (billed_per IN ('instance', 'function')),
    minimum_seconds double precision NOT NULL DEFAULT 0 CHECK (minimum_seconds >= 0 AND minimum_seconds <= 1e7),
    price_per_gb double precision NOT NULL DEFAULT 0 CHECK (price_per_gb >= 0 AND price_per_gb <= 1e9),
    queue_seconds double precision NOT NULL DEFAULT 0 CHECK (queue_seconds >= 0 AND queue_seconds <= 1e7),
    queue_sd_seconds double precision NOT NULL DEFAULT 0 CHECK (queue_sd_seconds >= 0 AND queue_sd_seconds <= 1e7),
    start_seconds double precision NOT NULL DEFAULT 0 CHECK (start_seconds >= 0 AND start_seconds <= 1e7),
    start_sd_seconds double precision NOT NULL DEFAULT 0 CHECK (start_sd_seconds >= 0 AND start_sd_seconds <= 1e7),
    max_instances integer CHECK (max_instances >= 1),
    speed double precision NOT NULL DEFAULT 1 CHECK (speed > 0 AND speed < 'Infinity'),
    PRIMARY KEY (price_list, instance_type)
);
COMMENT ON TABLE easeml.instance_types IS 'What a price list offers: instances with slots of one kind of device.';
COMMENT ON COLUMN easeml.instance_types.price_per_hour IS 'Price of an instance with all its slots.';
COMMENT ON COLUMN easeml.instance_types.billed_by IS 'second, or minute: each started minute is billed.';
COMMENT ON COLUMN easeml.instance_types.billed_per IS 'instance: billed from when the provider has it ready, without '
    'the queue but with its start, until its release; function: only slots on which something trains.';
COMMENT ON COLUMN easeml.instance_types.minimum_seconds IS 'Seconds billed at least, for each instance.';
COMMENT ON COLUMN easeml.instance_types.price_per_gb IS
    'Price of a GB of the data that an instance brings in once, when it starts.';
COMMENT ON COLUMN easeml.instance_types.queue_seconds IS
    'Mean wait in the provider''s queue, not billed; with its standard deviation.';
COMMENT ON COLUMN easeml.instance_types.start_seconds IS
    'Mean time until an instance can train, billed; with its standard deviation.';
COMMENT ON COLUMN easeml.instance_types.max_instances IS 'Largest number of instances; null: no limit.';
COMMENT ON COLUMN easeml.instance_types.speed IS
    'Speed of one of its slots, relative to the measured slots of its kind of device.';

INSERT INTO easeml.price_lists (price_list, caveat, is_local, is_shipped) VALUES
    ('local', 'This server''s slots, at 1 for each slot and hour.', true, true),
    ('aws-p3', 'RubberBand''s figures of 2021: about 3 an hour for p3.2xlarge and 24 for p3.16xlarge in its text, '
        '12.24 for p3.8xlarge as its table 2 implies; section 6.2 says 7.50 for p3.16xlarge. 15 s to start, of a warm '
        'pool. Look up today''s prices.', false, true)
ON CONFLICT DO NOTHING;
INSERT INTO easeml.instance_types (price_list, instance_type, device_kind, n_slots, price_per_hour,
    minimum_seconds, start_seconds) VALUES
    ('local', 'cpu slot', 'cpu', 1, 1, 0, 0), ('local', 'cuda slot', 'cuda', 1, 1, 0, 0),
    ('aws-p3', 'p3.2xlarge', 'cuda', 1, 3.06, 60, 15), ('aws-p3', 'p3.8xlarge', 'cuda', 4, 12.24, 60, 15),
    ('aws-p3', 'p3.16xlarge', 'cuda', 8, 24.48, 60, 15)
ON CONFLICT DO NOTHING;

-- Plans of runs: what was planned when, and the outcome.

CREATE TABLE IF NOT EXISTS easeml.plans (
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    revision integer NOT NULL CHECK (revision >= 1),
    reason text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    is_within_limits boolean NOT NULL,
    cost_before double precision NOT NULL DEFAULT 0,
    seconds_mean double precision NOT NULL,
    seconds_p95 double precision NOT NULL,
    cost_mean double precision NOT NULL,
    cost_p95 double precision NOT NULL,
    note text,
    PRIMARY KEY (run_id, revision),
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.plans IS
    'One row for each plan of a run: the first plan when it was requested, later ones of what was left then.';
COMMENT ON COLUMN easeml.plans.reason IS 'Why it was planned: start, or what had changed.';
COMMENT ON COLUMN easeml.plans.is_within_limits IS
    'Whether the plan is predicted to keep deadline and max_cost in 95 of 100 cases.';
COMMENT ON COLUMN easeml.plans.cost_before IS 'What the run had cost by then.';
COMMENT ON COLUMN easeml.plans.seconds_mean IS 'Seconds from then to the end.';
COMMENT ON COLUMN easeml.plans.cost_mean IS 'What the rest costs, without cost_before.';
COMMENT ON COLUMN easeml.plans.note IS 'What had to be assumed.';

CREATE TABLE IF NOT EXISTS easeml.planned_stages (
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    revision integer NOT NULL,
    stage integer NOT NULL CHECK (stage >= 0),
    label text NOT NULL,
    arm text NOT NULL,
    bracket integer NOT NULL,
    target_epochs integer NOT NULL,
    n_trials integer NOT NULL,
    n_epochs double precision NOT NULL,
    instance_type text NOT NULL,
    n_slots integer NOT NULL CHECK (n_slots >= 1),
    n_instances integer NOT NULL CHECK (n_instances >= 1),
    width integer NOT NULL CHECK (width >= 1),
    start_seconds double precision NOT NULL,
    seconds_mean double precision NOT NULL,
    seconds_p50 double precision NOT NULL,
    seconds_p95 double precision NOT NULL,
    cost_mean double precision NOT NULL,
    cost_p95 double precision NOT NULL,
    PRIMARY KEY (run_id, revision, stage),
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.planned_stages IS
    'The stages of each plan of a run: how many trials train how many epochs on how many slots.';
COMMENT ON COLUMN easeml.planned_stages.arm IS 'The arm whose trials train; empty: those of all arms.';
COMMENT ON COLUMN easeml.planned_stages.target_epochs IS
    'The epoch up to which they train; 0: to the end, or as the procedure decides.';
COMMENT ON COLUMN easeml.planned_stages.width IS 'Slots that a trial trains on at once.';
COMMENT ON COLUMN easeml.planned_stages.start_seconds IS
    'Expected seconds from the plan to the beginning of the stage.';

CREATE TABLE IF NOT EXISTS easeml.executed_stages (
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    place integer NOT NULL CHECK (place >= 1),
    revision integer NOT NULL,
    label text NOT NULL,
    arm text NOT NULL,
    bracket integer NOT NULL,
    target_epochs integer NOT NULL,
    began_at timestamptz NOT NULL,
    ended_at timestamptz,
    n_trials integer NOT NULL,
    n_slots integer NOT NULL,
    cost_before double precision NOT NULL,
    cost double precision,
    n_failures integer NOT NULL DEFAULT 0,
    n_beside integer NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, place),
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.executed_stages IS 'The stages that planned runs have been through, in their order.';
COMMENT ON COLUMN easeml.executed_stages.revision IS 'The plan in force when it began.';
COMMENT ON COLUMN easeml.executed_stages.n_slots IS 'Most slots that it had at once.';
COMMENT ON COLUMN easeml.executed_stages.cost_before IS 'What the run had cost when it began.';
COMMENT ON COLUMN easeml.executed_stages.cost IS 'What the run cost while it lasted.';
COMMENT ON COLUMN easeml.executed_stages.n_failures IS 'Instances that did not come up, or died, while it lasted.';
COMMENT ON COLUMN easeml.executed_stages.n_beside IS
    'Largest number of trials of other arms that trained at once while it lasted, on slots that were idle.';

CREATE TABLE IF NOT EXISTS easeml.provisioners (
    provisioner text PRIMARY KEY CHECK (length(provisioner) BETWEEN 1 AND 200),
    price_list text UNIQUE,
    start_program text[],
    probe_program text[],
    stop_program text[],
    timeout_seconds double precision NOT NULL DEFAULT 60 CHECK (timeout_seconds > 0 AND timeout_seconds <= 86400),
    ready_seconds double precision NOT NULL DEFAULT 900 CHECK (ready_seconds > 0 AND ready_seconds <= 86400),
    max_slots integer CHECK (max_slots >= 1)
);
COMMENT ON TABLE easeml.provisioners IS 'What starts and stops instances for planned runs: programs, which run as the '
    'coordinator. local needs none: it adds slots to this server.';
COMMENT ON COLUMN easeml.provisioners.price_list IS 'The price list whose instances it starts.';
COMMENT ON COLUMN easeml.provisioners.start_program IS 'Program and arguments; called without a shell.';
COMMENT ON COLUMN easeml.provisioners.timeout_seconds IS 'How long a call may take.';
COMMENT ON COLUMN easeml.provisioners.ready_seconds IS 'How long an instance may take until it is ready.';
COMMENT ON COLUMN easeml.provisioners.max_slots IS 'Limit on the slots of all its instances; of local: on all slots of '
    'this server. Null: of local the slots that there are without any instance, else no limit.';

CREATE TABLE IF NOT EXISTS easeml.instances (
    instance_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- no foreign key: an instance of a run that is dropped must still be stopped, and easeml.instance_status shows its
    -- cost until easeml prune removes it
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    provisioner text NOT NULL,
    price_list text NOT NULL,
    instance_type text NOT NULL,
    device_kind text NOT NULL,
    n_slots integer NOT NULL CHECK (n_slots >= 1),
    request_id text NOT NULL UNIQUE DEFAULT gen_random_uuid()::text,
    status text NOT NULL DEFAULT 'requested'
        CHECK (status IN ('requested', 'ready', 'releasing', 'released', 'failed')),
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    billed_from timestamptz,
    ready_at timestamptz,
    ended_at timestamptz,
    failure_reason text,
    price_per_hour double precision NOT NULL,
    billed_by text NOT NULL,
    billed_per text NOT NULL,
    minimum_seconds double precision NOT NULL,
    data_price double precision NOT NULL,
    cost double precision
);
CREATE INDEX IF NOT EXISTS instances_run ON easeml.instances (run_id);
CREATE INDEX IF NOT EXISTS instances_alive ON easeml.instances (instance_id)
    WHERE status IN ('requested', 'ready', 'releasing');
COMMENT ON TABLE easeml.instances IS 'Instances of planned runs. A row is written before its program is called, so '
    'that none is started twice, and none forgotten.';
COMMENT ON COLUMN easeml.instances.request_id IS
    'Identifier that programs get: the same for all calls about an instance, and different for each instance.';
COMMENT ON COLUMN easeml.instances.billed_from IS 'When the wait in the provider''s queue was over.';
COMMENT ON COLUMN easeml.instances.price_per_hour IS 'Price when it was requested, with how it is billed.';
COMMENT ON COLUMN easeml.instances.data_price IS 'Price of the data that it brings in.';
COMMENT ON COLUMN easeml.instances.cost IS 'What it cost in the end.';

CREATE TABLE IF NOT EXISTS easeml.provisioner_calls (
    call_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_id bigint NOT NULL,
    called_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    program text NOT NULL CHECK (program IN ('start', 'probe', 'stop')),
    outcome text NOT NULL,
    output text NOT NULL CHECK (length(output) <= 4000)
);
CREATE INDEX IF NOT EXISTS provisioner_calls_instance ON easeml.provisioner_calls (instance_id);
COMMENT ON TABLE easeml.provisioner_calls IS 'Output of provisioners'' programs, from the last thousand calls. Only '
    'administrators may read it, because it may hold secrets.';

-- What the coordinator forecast of runs under way, and when.

CREATE TABLE IF NOT EXISTS easeml.forecasts (
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    eta_at timestamptz,
    eta_earliest_at timestamptz,
    eta_p95_at timestamptz,
    cost_so_far double precision NOT NULL,
    cost_expected double precision,
    cost_p95 double precision,
    note text,
    PRIMARY KEY (run_id, made_at),
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.forecasts IS 'Forecasts of runs, so that views need not compute them: the newest, and of the '
    'older ones fewer the longer the run takes.';
COMMENT ON COLUMN easeml.forecasts.note IS 'What had to be assumed, or why there is no forecast.';
