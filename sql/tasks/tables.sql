-- Tasks: inputs and outputs, as a program declares them, and the examples that were fed. docs/design/tasks.md says why
-- it is built so.

-- The examples of tasks: a table for each, which easeml_owner makes and owns. So the service packs them without running
-- anything of a tenant's. Whoever had a schema of that name could have objects in it.
DO $tasks$
BEGIN
    IF to_regnamespace('easeml_tasks') IS NULL THEN
        CREATE SCHEMA easeml_tasks AUTHORIZATION easeml_owner;
    ELSIF NOT EXISTS (SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'easeml'
        WHERE d.refclassid = 'pg_extension'::regclass AND d.classid = 'pg_namespace'::regclass
            AND d.objid = to_regnamespace('easeml_tasks') AND d.deptype = 'e') THEN
        RAISE EXCEPTION USING errcode = 'ML004', message = 'schema easeml_tasks is there already',
            hint = 'Rename or drop it, and create or update the extension again.';
    END IF;
END
$tasks$;
COMMENT ON SCHEMA easeml_tasks IS
    'Examples of the tasks of easeml; tenants see theirs through the views that easeml.create_task makes.';

CREATE TABLE IF NOT EXISTS easeml.tasks (
    task_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant name NOT NULL,
    task_name text NOT NULL CHECK (task_name <> '' AND octet_length(task_name) <= 50),
    program text NOT NULL,
    template text NOT NULL,
    examples text NOT NULL,
    place text NOT NULL,
    specification jsonb NOT NULL,
    classes text[],
    run_after_examples integer CHECK (run_after_examples >= 1),
    run_after_minutes double precision CHECK (run_after_minutes >= 0 AND run_after_minutes < 1e9),
    run_options jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now() CHECK (isfinite(created_at)),
    wanted_at timestamptz CHECK (isfinite(wanted_at)),
    n_seen_changes bigint NOT NULL DEFAULT -1,
    n_pending integer NOT NULL DEFAULT 0,
    pending_since timestamptz CHECK (isfinite(pending_since)),
    problem text,
    not_before timestamptz CHECK (isfinite(not_before)),
    UNIQUE (tenant, task_name),
    UNIQUE (task_id, tenant)
);
COMMENT ON TABLE easeml.tasks IS
    'Tasks: programs with their examples. The packed versions of a task are datasets of the same name.';
COMMENT ON COLUMN easeml.tasks.program IS 'Shapes of inputs and outputs, printed in full.';
COMMENT ON COLUMN easeml.tasks.template IS 'The template that it matches, one of easeml.templates.';
COMMENT ON COLUMN easeml.tasks.examples IS
    'The table that holds the examples, as SQL writes it: the target of a fast COPY.';
COMMENT ON COLUMN easeml.tasks.place IS
    'The view of the examples in the schema that its owner named, as SQL writes it.';
COMMENT ON COLUMN easeml.tasks.specification IS
    'Columns of the table of examples with their shapes, and how versions are packed.';
COMMENT ON COLUMN easeml.tasks.classes IS
    'Names of the classes, in the order of the output tensor; null if the output is a number.';
COMMENT ON COLUMN easeml.tasks.run_after_examples IS
    'Number of examples fed or switched since the last run after which the next one starts; null: never by itself.';
COMMENT ON COLUMN easeml.tasks.run_after_minutes IS
    'Minutes from the first change since the last run to the start of the next one; null: never by itself.';
COMMENT ON COLUMN easeml.tasks.run_options IS 'Arguments of easeml.select_models for the runs of the task.';
COMMENT ON COLUMN easeml.tasks.wanted_at IS 'When its owner asked for a run by hand; null once it has begun.';
COMMENT ON COLUMN easeml.tasks.n_seen_changes IS
    'Number of changes to the table of examples, as the server counted them when the service last checked the task.';
COMMENT ON COLUMN easeml.tasks.n_pending IS
    'Number of examples that differ from those of the newest version, as last counted.';
COMMENT ON COLUMN easeml.tasks.pending_since IS 'When the service first saw that they differ.';
COMMENT ON COLUMN easeml.tasks.not_before IS 'When the service tries again, after a run that could not begin.';
COMMENT ON COLUMN easeml.tasks.problem IS
    'Why no run begins, such as too few examples; null if nothing stands in the way.';

CREATE TABLE IF NOT EXISTS easeml.task_versions (
    dataset_id bigint PRIMARY KEY,
    tenant name NOT NULL,
    task_id bigint NOT NULL,
    n_examples bigint NOT NULL CHECK (n_examples >= 0),
    n_off bigint NOT NULL CHECK (n_off >= 0),
    n_changed bigint NOT NULL CHECK (n_changed >= 0),
    n_packed_bytes bigint NOT NULL CHECK (n_packed_bytes >= 0),
    n_kept_bytes bigint NOT NULL CHECK (n_kept_bytes >= 0),
    packed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (dataset_id, tenant) REFERENCES easeml.datasets (dataset_id, tenant) ON DELETE CASCADE,
    FOREIGN KEY (task_id, tenant) REFERENCES easeml.tasks (task_id, tenant) ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS task_versions_task ON easeml.task_versions (task_id);
COMMENT ON TABLE easeml.task_versions IS
    'What was packed anew for each version of a task, and what was kept from versions before.';
COMMENT ON COLUMN easeml.task_versions.n_examples IS 'Examples that the version holds.';
COMMENT ON COLUMN easeml.task_versions.n_off IS 'Number of examples with an output that are switched off.';
COMMENT ON COLUMN easeml.task_versions.n_changed IS
    'Number of examples that only one of this version and the one before has.';
COMMENT ON COLUMN easeml.task_versions.n_packed_bytes IS 'Bytes of the blocks that were packed for it.';
COMMENT ON COLUMN easeml.task_versions.n_kept_bytes IS 'Bytes of the blocks that it shares with versions before.';

CREATE TABLE IF NOT EXISTS easeml.task_runs (
    run_id bigint PRIMARY KEY REFERENCES easeml.runs ON DELETE CASCADE,
    tenant name NOT NULL,
    task_id bigint NOT NULL,
    reason text NOT NULL CHECK (reason IN ('examples', 'minutes', 'by hand', 'new architecture')),
    FOREIGN KEY (task_id, tenant) REFERENCES easeml.tasks (task_id, tenant) ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS task_runs_task ON easeml.task_runs (task_id);
COMMENT ON TABLE easeml.task_runs IS 'Runs that the service has started for tasks, and why.';
COMMENT ON COLUMN easeml.task_runs.reason IS 'examples, minutes (the rules of the task), by hand, or new architecture.';

CREATE TABLE IF NOT EXISTS easeml.registered_architectures (
    architecture text PRIMARY KEY CHECK (architecture ~ '^[a-z][a-z0-9_]{0,39}$'),
    entry_point text NOT NULL,
    programs text[] NOT NULL,
    templates text[] NOT NULL,
    hyperparameters jsonb NOT NULL,
    summary text NOT NULL CHECK (octet_length(summary) <= 1000),
    tasks text[] NOT NULL,
    input_ranks integer[] NOT NULL,
    made_for text[] NOT NULL,
    registered_by name NOT NULL DEFAULT current_user,
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    withdrawn_at timestamptz
);
COMMENT ON TABLE easeml.registered_architectures IS 'Architectures of installed packages that an administrator '
    'registered. A name never changes its meaning, because stored trials refer to it.';
COMMENT ON COLUMN easeml.registered_architectures.entry_point IS 'The function that builds it, '
    'package.module:function, as an installed package offers it in the group easeml.architectures.';
COMMENT ON COLUMN easeml.registered_architectures.programs IS
    'Programs for which it was built, trained, stored and asked when it was registered.';
COMMENT ON COLUMN easeml.registered_architectures.templates IS
    'Templates of those programs: tasks of these templates get it as another arm.';
COMMENT ON COLUMN easeml.registered_architectures.hyperparameters IS
    'Its own hyperparameters; those of training come on top.';
COMMENT ON COLUMN easeml.registered_architectures.tasks IS 'Tasks that it can learn: classification, regression.';
COMMENT ON COLUMN easeml.registered_architectures.input_ranks IS 'Ranks of the input shapes that it takes.';
COMMENT ON COLUMN easeml.registered_architectures.made_for IS
    'Kinds of input that it is made for: table, image, series.';
COMMENT ON COLUMN easeml.registered_architectures.withdrawn_at IS
    'When it was withdrawn: no later run may use it; trials that were trained before still answer.';

CREATE TABLE IF NOT EXISTS easeml.labelling_functions (
    task_id bigint NOT NULL,
    tenant name NOT NULL,
    function text NOT NULL,
    added_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (task_id, function),
    FOREIGN KEY (task_id, tenant) REFERENCES easeml.tasks (task_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.labelling_functions IS
    'Functions that label examples without an output. The role that feeds or labels runs them, never the service.';
COMMENT ON COLUMN easeml.labelling_functions.function IS 'The function as SQL writes it, with its schema.';
COMMENT ON COLUMN easeml.labelling_functions.added_at IS 'The oldest is asked first.';
