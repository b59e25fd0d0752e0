-- How long old rows are kept, where administrators chose; functions/retention.sql has the defaults.

CREATE TABLE easeml.retention_settings (
    what text PRIMARY KEY,
    keep interval CHECK (keep > '0' AND keep <= '1000 years'),
    set_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE easeml.retention_settings IS
    'How long old rows are kept, for what easeml.set_retention has changed; easeml.retention shows all.';
COMMENT ON COLUMN easeml.retention_settings.keep IS 'For how long; null: forever.';
