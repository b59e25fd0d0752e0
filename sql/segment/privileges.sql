-- Only members of easeml_segment work here. They own nothing: an owner may attach functions to a table, and whoever
-- reads it runs them.
DO $privileges$
DECLARE
    item record;
BEGIN
    FOR item IN SELECT c.oid::regclass AS relation FROM pg_class c
        WHERE c.relnamespace = 'easeml_segment'::regnamespace AND c.relkind = 'r' LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO easeml_segment', item.relation);
    END LOOP;
    FOR item IN SELECT p.oid::regprocedure AS routine FROM pg_proc p
        WHERE p.pronamespace = 'easeml_segment'::regnamespace LOOP
        EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', item.routine);
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO easeml_segment', item.routine);
    END LOOP;
    -- Before PostgreSQL 17 only an owner may vacuum a table, so there autovacuum does it.
    IF current_setting('server_version_num')::integer >= 170000 THEN
        EXECUTE 'GRANT MAINTAIN ON easeml_segment.checkpoints, easeml_segment.checkpoint_chunks TO easeml_segment';
    END IF;
END
$privileges$;
GRANT USAGE ON SCHEMA easeml_segment TO easeml_segment;
