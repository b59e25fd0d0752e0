-- Objects of others that an update would meet: what depends on tables of easeml, on the types of their rows, or on a
-- function or view that the update drops; and what depends on those. Each with the statement that removes it, in an
-- order in which they work. It stands in every update, and easeml install asks the same before it begins.
WITH RECURSIVE part(classid, objid, relation) AS (
    SELECT 'pg_attrdef'::regclass::oid, d.oid, d.adrelid FROM pg_attrdef d
    UNION ALL SELECT 'pg_constraint'::regclass, c.oid, c.conrelid FROM pg_constraint c WHERE c.conrelid <> 0
    UNION ALL SELECT 'pg_trigger'::regclass, t.oid, t.tgrelid FROM pg_trigger t
    UNION ALL SELECT 'pg_policy'::regclass, p.oid, p.polrelid FROM pg_policy p
    UNION ALL SELECT 'pg_rewrite'::regclass, r.oid, r.ev_class FROM pg_rewrite r
    UNION ALL SELECT 'pg_class'::regclass, i.indexrelid, i.indrelid FROM pg_index i
    UNION ALL SELECT 'pg_class'::regclass, c.reltoastrelid, c.oid FROM pg_class c WHERE c.reltoastrelid <> 0
    UNION ALL SELECT 'pg_statistic_ext'::regclass, s.oid, s.stxrelid FROM pg_statistic_ext s
    UNION ALL SELECT 'pg_type'::regclass, k.type, t.typrelid FROM pg_type t, unnest(ARRAY[t.oid, t.typarray]) k(type)
    WHERE t.typrelid <> 0 AND k.type <> 0
), member(classid, objid) AS (
    SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
    WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'easeml'
), ours(relation) AS (
    SELECT m.objid FROM member m WHERE m.classid = 'pg_class'::regclass
    -- Tables of examples belong to easeml_owner; easeml makes and drops them.
    UNION ALL SELECT c.oid FROM pg_class c WHERE c.relnamespace = to_regnamespace('easeml_tasks')
), changed(relation) AS (
    SELECT c.oid FROM pg_class c JOIN ours o ON o.relation = c.oid
    WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind IN ('r', 'S')
    UNION ALL SELECT CASE WHEN k.name NOT LIKE '%(%' THEN to_regclass(k.name)::oid END FROM unnest({dropped}) k(name)
), found(classid, objid, objsubid, level) AS (
    SELECT 'pg_class'::regclass::oid, c.relation, 0, 0 FROM changed c WHERE c.relation IS NOT NULL
    UNION SELECT 'pg_proc'::regclass, p.oid, 0, 0 FROM unnest({dropped}) k(name)
    JOIN pg_proc p ON p.oid = CASE WHEN k.name LIKE '%(%' THEN to_regprocedure(k.name) END
    UNION
    SELECT CASE WHEN r.rulename = '_RETURN' THEN 'pg_class'::regclass ELSE d.classid END,
        CASE WHEN r.rulename = '_RETURN' THEN r.ev_class ELSE d.objid END,
        CASE WHEN r.rulename = '_RETURN' THEN 0 ELSE d.objsubid END, f.level + 1
    FROM found f
    CROSS JOIN LATERAL (SELECT f.classid, f.objid, f.objsubid UNION ALL SELECT p.classid, p.objid, 0 FROM part p
        WHERE f.classid = 'pg_class'::regclass AND f.objsubid = 0 AND p.relation = f.objid
        AND p.classid IN ('pg_type'::regclass, 'pg_constraint'::regclass)) n
    JOIN pg_depend d ON d.refclassid = n.classid AND d.refobjid = n.objid
        AND (n.objsubid = 0 OR d.refobjsubid = n.objsubid)
    LEFT JOIN part p ON p.classid = d.classid AND p.objid = d.objid
    LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
    WHERE f.level < 30 AND d.deptype <> 'e' AND NOT EXISTS (SELECT FROM ours o WHERE o.relation = p.relation)
        AND NOT EXISTS (SELECT FROM member m WHERE m.classid = d.classid AND m.objid = d.objid)
        AND (f.classid <> 'pg_class'::regclass OR f.objsubid <> 0 OR p.relation IS DISTINCT FROM f.objid)
        AND (d.classid, d.objid, d.objsubid) <> (f.classid, f.objid, f.objsubid)
        AND NOT EXISTS (SELECT FROM ours o WHERE d.classid = 'pg_class'::regclass AND o.relation = d.objid)
), foreigner AS (
    SELECT f.classid, f.objid, f.objsubid, max(f.level) AS level FROM found f WHERE f.level > 0 GROUP BY 1, 2, 3
)
SELECT i.type IN ('view', 'materialized view') AS is_view, i.schema, i.name,
    format('%s %s', i.type, i.identity) AS what, pg_get_userbyid(coalesce(c.relowner, o.relowner, k.proowner))::text
        AS owner,
    CASE i.type
        WHEN 'table column' THEN format('ALTER TABLE %s DROP COLUMN %I', c.oid::regclass, a.attname)
        WHEN 'composite type column' THEN format('ALTER TYPE %s DROP ATTRIBUTE %I', c.oid::regclass, a.attname)
        WHEN 'table constraint' THEN format('ALTER TABLE %s DROP CONSTRAINT %I', o.oid::regclass, n.conname)
        WHEN 'default value' THEN format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT', o.oid::regclass, b.attname)
        ELSE format('DROP %s %s', upper(replace(i.type, 'statistics object', 'statistics')), i.identity) END
        AS statement
FROM foreigner f CROSS JOIN LATERAL pg_identify_object(f.classid, f.objid, f.objsubid) i
LEFT JOIN pg_class c ON f.classid = 'pg_class'::regclass AND c.oid = f.objid
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = f.objsubid AND f.objsubid > 0
LEFT JOIN pg_proc k ON f.classid = 'pg_proc'::regclass AND k.oid = f.objid
LEFT JOIN part p ON p.classid = f.classid AND p.objid = f.objid
LEFT JOIN pg_class o ON o.oid = p.relation
LEFT JOIN pg_constraint n ON f.classid = 'pg_constraint'::regclass AND n.oid = f.objid
LEFT JOIN pg_attrdef d ON f.classid = 'pg_attrdef'::regclass AND d.oid = f.objid
LEFT JOIN pg_attribute b ON b.attrelid = d.adrelid AND b.attnum = d.adnum
ORDER BY f.level DESC, i.identity
