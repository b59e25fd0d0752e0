-- Trial groups: which devices each trial of a run with water-filling got, and the measurements behind that.

CREATE TABLE IF NOT EXISTS easeml.device_profiles (
    tenant name NOT NULL,
    dataset_id bigint NOT NULL,
    architecture text NOT NULL,
    device_kind text NOT NULL CHECK (device_kind IN ('cpu', 'cuda')),
    alpha double precision NOT NULL CHECK (alpha >= 1),
    beta double precision NOT NULL CHECK (beta >= 1),
    c integer NOT NULL CHECK (c >= 1),
    d integer NOT NULL CHECK (d >= 1),
    eps_seconds double precision NOT NULL CHECK (eps_seconds >= 0),
    n_packed integer NOT NULL CHECK (n_packed >= 1),
    n_devices integer NOT NULL CHECK (n_devices >= 1),
    is_bounded boolean NOT NULL,
    measurements jsonb NOT NULL,
    run_id bigint,
    measured_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, dataset_id, architecture, device_kind),
    FOREIGN KEY (dataset_id, tenant) REFERENCES easeml.datasets (dataset_id, tenant) ON DELETE CASCADE,
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE SET NULL (run_id)
);
CREATE INDEX IF NOT EXISTS device_profiles_run ON easeml.device_profiles (run_id);
COMMENT ON TABLE easeml.device_profiles IS 'What the trials of an architecture lose when they share a device or spread '
    'over several. The coordinator measures it when a run with water-filling first needs it.';
COMMENT ON COLUMN easeml.device_profiles.alpha IS 'Factor by which each further trial on a device slows the others.';
COMMENT ON COLUMN easeml.device_profiles.beta IS 'Factor of the ideal speed that each further device of a trial costs.';
COMMENT ON COLUMN easeml.device_profiles.c IS 'Largest number of trials that fit on a device and are worthwhile.';
COMMENT ON COLUMN easeml.device_profiles.d IS 'Largest number of devices that is worthwhile for a trial.';
COMMENT ON COLUMN easeml.device_profiles.eps_seconds IS 'Seconds to bring a trial onto another slot.';
COMMENT ON COLUMN easeml.device_profiles.n_packed IS 'Largest number of trials that were tried on a device.';
COMMENT ON COLUMN easeml.device_profiles.n_devices IS 'Largest number of devices that were tried for a trial.';
COMMENT ON COLUMN easeml.device_profiles.is_bounded IS
    'Whether packing ended because more trials would not have paid or fitted; false if slots or trials ran out.';
COMMENT ON COLUMN easeml.device_profiles.measurements IS 'slowdowns: seconds of 1, 2, ... trials on a device relative '
    'to each alone; speedups: on 1, 2, ... devices; seconds_per_row of a trial alone; open_seconds; trial_bytes and '
    'device_bytes, if known; threshold; n_discarded rounds.';
COMMENT ON COLUMN easeml.device_profiles.run_id IS
    'The run that measured it before its first units; null once that run is dropped.';

CREATE TABLE IF NOT EXISTS easeml.trial_groups (
    group_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    lease_number bigint NOT NULL,
    group_number integer NOT NULL CHECK (group_number >= 1),
    label text NOT NULL,
    n_trials integer NOT NULL CHECK (n_trials >= 1),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    UNIQUE (run_id, lease_number, group_number),
    UNIQUE (group_id, tenant),
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.trial_groups IS 'Trials of a run with water-filling that became runnable together: a grid, a '
    'rung, or all open trials when a coordinator took over.';
COMMENT ON COLUMN easeml.trial_groups.lease_number IS
    'The coordinator that made the group; the next coordinator makes its own groups from the open trials.';
COMMENT ON COLUMN easeml.trial_groups.group_number IS
    'Order in which this coordinator made the groups of the run, from 1.';
COMMENT ON COLUMN easeml.trial_groups.label IS
    'What its trials share: architectures, and the epoch up to which they train.';
COMMENT ON COLUMN easeml.trial_groups.ended_at IS 'When the last of its trials ended or was stopped.';

CREATE TABLE IF NOT EXISTS easeml.allocations (
    allocation_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id bigint NOT NULL,
    trial_id bigint NOT NULL,
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    width double precision NOT NULL CHECK (width > 0),
    devices text[] NOT NULL,
    slot_ids integer[] NOT NULL,
    reason text NOT NULL CHECK (reason IN ('static', 'dynamic')),
    decided_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (group_id, tenant) REFERENCES easeml.trial_groups (group_id, tenant) ON DELETE CASCADE,
    FOREIGN KEY (trial_id, tenant) REFERENCES easeml.trials (trial_id, tenant) ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS allocations_run ON easeml.allocations (run_id);
CREATE INDEX IF NOT EXISTS allocations_group ON easeml.allocations (group_id);
CREATE INDEX IF NOT EXISTS allocations_trial ON easeml.allocations (trial_id);
COMMENT ON TABLE easeml.allocations IS 'Which devices a trial has from its next unit on: one row for each decision.';
COMMENT ON COLUMN easeml.allocations.width IS 'Number of devices of its own; below 1, its share of one device.';
COMMENT ON COLUMN easeml.allocations.slot_ids IS 'Slots of these devices; a unit runs on one slot of each.';
COMMENT ON COLUMN easeml.allocations.reason IS
    'static: the trial was new or had lost its devices; dynamic: the coordinator resized it.';
