-- What answers for a dataset: chosen by its metric or by hand, and what answered before.

CREATE TABLE IF NOT EXISTS easeml.serving_metrics (
    tenant name NOT NULL,
    dataset_name text NOT NULL,
    metric text NOT NULL,
    is_higher_better boolean NOT NULL,
    is_chosen boolean NOT NULL DEFAULT false,
    set_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, dataset_name)
);
COMMENT ON TABLE easeml.serving_metrics IS
    'The metric that decides which trial answers for a dataset, in all of its versions.';
COMMENT ON COLUMN easeml.serving_metrics.is_chosen IS 'Whether easeml.set_serving_metric set it. Otherwise it comes '
    'from the first run, and is removed with the last run.';

CREATE TABLE IF NOT EXISTS easeml.deployments (
    tenant name NOT NULL,
    dataset_name text NOT NULL,
    trial_id bigint NOT NULL,
    deployed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, dataset_name),
    FOREIGN KEY (trial_id, tenant) REFERENCES easeml.trials (trial_id, tenant) ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS deployments_trial ON easeml.deployments (trial_id);
COMMENT ON TABLE easeml.deployments IS
    'Trials that their tenants chose to answer easeml.predict, at most one for each dataset.';

CREATE TABLE IF NOT EXISTS easeml.servings (
    serving_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant name NOT NULL,
    dataset_name text NOT NULL,
    trial_id bigint,  -- no foreign key: the history outlives its runs
    is_deployed boolean NOT NULL,
    metric text NOT NULL,
    metric_value double precision,
    reason text NOT NULL
        CHECK (reason IN ('better', 'deployed', 'undeployed', 'rolled back', 'dropped', 'metric', 'refreshed')),
    restored_id bigint,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS servings_dataset ON easeml.servings (tenant, dataset_name, serving_id);
COMMENT ON TABLE easeml.servings IS
    'What answered for each dataset, one row for each change; the last 200 of a dataset are kept.';
COMMENT ON COLUMN easeml.servings.trial_id IS 'The trial that answers from then on; null if none does.';
COMMENT ON COLUMN easeml.servings.metric_value IS 'Value of the metric on the validation rows at that moment.';
COMMENT ON COLUMN easeml.servings.restored_id IS
    'The change that easeml.rollback went back to; the next rollback starts before it.';
