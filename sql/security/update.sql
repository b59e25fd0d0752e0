-- Begins every update. The rest of the script finds only what it names, whatever search_path the session has.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

-- Any role with a schema can make a view over a table of easeml, or a column of its rows, and PostgreSQL would name one
-- such object after another, each in an update that has failed.
DO $dependents$
DECLARE
    found record;
BEGIN
    SELECT count(*) AS n, string_agg(k.statement || ';' || coalesce('  -- of ' || k.owner, ''), E'\n') AS statements
    INTO found FROM (SELECT f.* FROM (
{dependents}) f LIMIT 200) k;
    IF found.n > 0 THEN
        RAISE EXCEPTION USING errcode = 'ML004', message = pg_catalog.format('%s object(s) of others depend on what '
                'the update changes', found.n), detail = found.statements,
            hint = 'Nothing was changed. "easeml install --dsn ..." drops views and makes them anew as their owners. '
                'Other objects have to be dropped by these statements, or changed by their owners, first.';
    END IF;
END
$dependents$;

-- Sessions of the service lock tables in an order of their own while the update runs, and the server ends one of those
-- that wait in a circle. So the update takes all locks before it changes anything, and takes them anew if it was ended.
-- An open transaction of a tenant may hold one of them for hours, and all others would wait for the locks that the
-- update has already: so it gives them back after two seconds, and tries again. A view is locked alone by an ALTER that
-- changes nothing; LOCK would lock the catalogs in it as well.
DO $locks$
DECLARE
    relation record;
    former text := pg_catalog.current_setting('lock_timeout');
BEGIN
    FOR attempt IN 1..20 LOOP
        BEGIN
            PERFORM pg_catalog.set_config('lock_timeout', '2s', true);
            FOR relation IN
                SELECT c.oid::pg_catalog.regclass AS name, c.relkind, c.relowner::pg_catalog.regrole AS owner
                FROM pg_catalog.pg_class c
                WHERE c.relnamespace = 'easeml'::pg_catalog.regnamespace AND c.relkind IN ('r', 'v')
                ORDER BY c.relkind DESC, c.oid
            LOOP
                IF relation.relkind = 'v' THEN
                    EXECUTE pg_catalog.format('ALTER VIEW %s OWNER TO %s', relation.name, relation.owner);
                ELSE
                    EXECUTE pg_catalog.format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', relation.name);
                END IF;
            END LOOP;
            PERFORM pg_catalog.set_config('lock_timeout', former, true);
            RETURN;
        EXCEPTION WHEN deadlock_detected OR lock_not_available THEN
            CONTINUE;
        END;
    END LOOP;
    RAISE EXCEPTION USING errcode = 'lock_not_available',
        message = 'the tables of easeml could not be locked: 20 times others held some of them',
        hint = 'Nothing was changed. End open transactions (pg_stat_activity), or stop the coordinator, and try again.';
END
$locks$;
