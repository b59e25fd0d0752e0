-- What administrators allow each tenant, and what tenants used up by runs that are gone.

CREATE TABLE IF NOT EXISTS easeml.tenants (
    tenant name PRIMARY KEY,
    weight double precision NOT NULL DEFAULT 1 CHECK (weight > 0 AND weight < 'Infinity'),
    deadline timestamptz CHECK (isfinite(deadline)),
    max_runs integer CHECK (max_runs > 0),
    max_slots integer CHECK (max_slots > 0),
    max_bytes bigint CHECK (max_bytes > 0),
    max_hours double precision CHECK (max_hours > 0 AND max_hours < 'Infinity'),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE easeml.tenants IS 'Roles with their own weight, deadline or limits. A member of easeml_tenant without '
    'a row has weight 1, as many open runs as easeml.tenancy.default_max_runs says, and no other limits.';
COMMENT ON COLUMN easeml.tenants.tenant IS 'The tenant, see easeml.tenant_roles.';
COMMENT ON COLUMN easeml.tenants.weight IS 'Share of the slots relative to other tenants.';
COMMENT ON COLUMN easeml.tenants.deadline IS 'When its runs should have ended.';
COMMENT ON COLUMN easeml.tenants.max_runs IS 'Queued and running runs at a time; null: no limit, also below.';
COMMENT ON COLUMN easeml.tenants.max_slots IS 'Slots at a time.';
COMMENT ON COLUMN easeml.tenants.max_bytes IS
    'Bytes of packed blocks, encoders, events, live checkpoints and records of runs.';
COMMENT ON COLUMN easeml.tenants.max_hours IS 'Slot hours of all its units, those of dropped runs included.';

-- A tenant is a name that stays; its role is an oid, which a dump writes as the role's name. So a role that was renamed
-- keeps its rows, and one that was dropped and made again is another tenant.
CREATE TABLE IF NOT EXISTS easeml.tenant_roles (
    tenant name PRIMARY KEY,
    role regrole UNIQUE,
    since timestamptz NOT NULL DEFAULT now(),
    role_name name
);
ALTER TABLE easeml.tenant_roles ADD COLUMN IF NOT EXISTS paced_until timestamptz;
COMMENT ON TABLE easeml.tenant_roles IS
    'Which role each tenant is. The first request of a role writes its row; easeml.adopt_tenant changes it.';
COMMENT ON COLUMN easeml.tenant_roles.tenant IS 'The name in the column tenant of all tables: the role''s name when it '
    'first asked for something, with a number where a former role has rows under that name.';
COMMENT ON COLUMN easeml.tenant_roles.role IS
    'The role; null if the rows came from a dump and the role does not exist.';
COMMENT ON COLUMN easeml.tenant_roles.role_name IS 'Name of the role in a dump; null in the table.';
COMMENT ON COLUMN easeml.tenant_roles.paced_until IS
    'Time up to which its next starts are delayed, see easeml.await_pace; null before the first, and in a dump.';

-- Not in easeml.tenants: a role without a row uses hours, too, and they outlive the row.
CREATE TABLE IF NOT EXISTS easeml.tenant_usage (
    tenant name PRIMARY KEY,
    dropped_seconds double precision NOT NULL CHECK (dropped_seconds >= 0)
);
COMMENT ON TABLE easeml.tenant_usage IS
    'Slot seconds of dropped runs, which stay counted, and of units that failed or were cancelled.';

-- Sums over one tenant read only these indexes; row-level security, which compares the tenant, uses them, too.
CREATE INDEX IF NOT EXISTS training_units_tenant ON easeml.training_units (tenant, started_at) INCLUDE (finished_at);
CREATE INDEX IF NOT EXISTS evaluations_tenant ON easeml.evaluations (tenant, started_at) INCLUDE (finished_at);
CREATE INDEX IF NOT EXISTS checkpoints_tenant ON easeml.checkpoints (tenant) INCLUDE (n_bytes);
CREATE INDEX IF NOT EXISTS events_tenant ON easeml.events (tenant);
