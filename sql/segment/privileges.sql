-- Only members of easeml_segment work here. They own the tables that they write, because only an owner may vacuum a
-- table.
DO $privileges$
DECLARE
    item record;
BEGIN
    FOR item IN SELECT c.oid::regclass AS relation FROM pg_class c
        WHERE c.relnamespace = 'easeml_segment'::regnamespace AND c.relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO easeml_segment', item.relation);
    END LOOP;
    FOR item IN SELECT p.oid::regprocedure AS routine FROM pg_proc p
        WHERE p.pronamespace = 'easeml_segment'::regnamespace LOOP
        EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', item.routine);
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO easeml_segment', item.routine);
    END LOOP;
END
$privileges$;
GRANT USAGE ON SCHEMA easeml_segment TO easeml_segment;
