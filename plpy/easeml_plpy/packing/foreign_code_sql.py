"""Queries of the catalogs about code that a relation brings along.

The path of every caller is pinned to pg_catalog. No query names the relation, so none plans anything over it.
$1 is the relation's oid, $2 the roles that read it, who all have to trust the code, $3 whether they write it, too.
"""

MAY_ACT = """pg_has_role({role}, u.reader::name,
        CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'MEMBER' ELSE 'SET' END)"""
"""Whether a role may become the reader, as the reader itself and superusers may: its code takes nothing from the reader
that it could not take anyway."""


def trusted_sql(role: str) -> str:
    """Return SQL of whether all readers trust the code of a role."""
    return f"(SELECT bool_and({MAY_ACT.format(role=role)}) FROM unnest($2) u(reader))"


HARMLESS_VOLATILE = "random", "clock_timestamp", "timeofday", "gen_random_uuid", "nextval"
# The last two are told of a table, and evaluate its partition key.
RUN_WHAT_AN_ARGUMENT_NAMES = (
    "^(table|query|cursor|schema|database)_to_xml|^ts_stat$|^ts_rewrite$|^pg_input_|_(in|recv)$"
    "|^pg_get_partition_constraintdef$|^satisfies_hash_partition$"
)

HARMLESS = f"""CASE WHEN f.oid >= 16384 THEN f.provolatile = 'i'
    ELSE (f.provolatile IN ('i', 's') OR f.proname IN {HARMLESS_VOLATILE})
        AND f.proname !~ '{RUN_WHAT_AN_ARGUMENT_NAMES}' END"""
"""Functions of superusers that do nothing to their caller, whatever arguments a stranger gives them."""

PLACES = f"""
WITH RECURSIVE read(relation, is_child) AS (
    SELECT $1::oid, false
    UNION SELECT x.relation, x.is_child FROM read r JOIN pg_class c ON c.oid = r.relation CROSS JOIN LATERAL (
        SELECT i.inhrelid, true FROM pg_inherits i WHERE i.inhparent = c.oid AND c.relhassubclass
        -- What a view reads, and the policies of a table.
        UNION ALL SELECT d.refobjid, false FROM pg_rewrite w JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass
            AND d.objid = w.oid AND d.refclassid = 'pg_class'::regclass
            WHERE w.ev_class = c.oid AND w.ev_type = '1' AND c.relhasrules AND c.relkind <> 'm'
        UNION ALL SELECT d.refobjid, false FROM pg_policy p JOIN pg_depend d ON d.classid = 'pg_policy'::regclass
            AND d.objid = p.oid AND d.refclassid = 'pg_class'::regclass
            WHERE p.polrelid = c.oid AND c.relrowsecurity) x(relation, is_child)),
readers AS MATERIALIZED (
    SELECT array_agg(a.oid) AS roles, bool_or(a.rolsuper) AS is_super FROM pg_roles a WHERE a.rolname = ANY ($2)),
owners AS MATERIALIZED (
    -- What a role does to its own relations is its own choice, unless code could go back to another role.
    -- A superuser's reading runs code of superusers alone.
    SELECT a.oid, {trusted_sql("a.oid")} AS is_trusted FROM pg_roles a
    WHERE EXISTS (SELECT FROM readers u WHERE u.is_super OR NOT a.oid = ALL (u.roles))),
looked_up AS MATERIALIZED (
    -- OFFSET 0: however many rows the planner expects, it looks each relation up.
    SELECT c.*, r.is_child FROM read r CROSS JOIN LATERAL (SELECT c.oid, c.relowner, c.relkind,
        c.relrowsecurity, c.relhasindex, c.relhasrules, c.relchecks, c.relhastriggers
        FROM pg_class c WHERE c.oid = r.relation AND c.relkind IN ('r', 'p', 'v', 'm', 'f') OFFSET 0) c),
judged AS MATERIALIZED (SELECT c.*, o.is_trusted FROM looked_up c JOIN owners o ON o.oid = c.relowner),
places(relation, class, object) AS (
    SELECT c.oid, 'pg_class'::regclass, i.indexrelid FROM judged c
        CROSS JOIN LATERAL (SELECT i.* FROM pg_index i WHERE i.indrelid = c.oid AND c.relhasindex OFFSET 0) i
        WHERE (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR 16384 <= ANY (i.indclass::oid[]))
    UNION ALL SELECT c.oid, 'pg_class'::regclass, c.oid
        FROM judged c JOIN pg_partitioned_table t ON t.partrelid = c.oid
        WHERE t.partexprs IS NOT NULL OR 16384 <= ANY (t.partclass::oid[])
    UNION ALL SELECT c.oid, 'pg_statistic_ext'::regclass, s.oid
        FROM pg_statistic_ext s JOIN judged c ON c.oid = s.stxrelid
    UNION ALL SELECT c.oid, 'pg_constraint'::regclass, k.oid
        FROM judged c JOIN pg_constraint k ON k.conrelid = c.oid WHERE c.relchecks > 0 AND k.contype = 'c'
    UNION ALL SELECT c.oid, 'pg_policy'::regclass, p.oid
        FROM judged c JOIN pg_policy p ON p.polrelid = c.oid WHERE c.relrowsecurity
    UNION ALL SELECT c.oid, 'pg_rewrite'::regclass, w.oid
        FROM judged c JOIN pg_rewrite w ON w.ev_class = c.oid
        WHERE c.relhasrules AND (w.ev_type = '1' AND c.relkind <> 'm' OR $3)
    UNION ALL SELECT c.oid, 'pg_attrdef'::regclass, e.oid
        FROM pg_attrdef e JOIN judged c ON c.oid = e.adrelid
        JOIN pg_attribute a ON a.attrelid = e.adrelid AND a.attnum = e.adnum WHERE a.attgenerated <> '' OR $3
    UNION ALL SELECT c.oid, 'pg_foreign_table'::regclass, t.ftrelid
        FROM judged c JOIN pg_foreign_table t ON t.ftrelid = c.oid
    UNION ALL SELECT c.oid, 'pg_trigger'::regclass, g.oid
        FROM judged c JOIN pg_trigger g ON g.tgrelid = c.oid WHERE $3 AND c.relhastriggers AND NOT g.tgisinternal
    -- A child has the types of its parent.
    UNION ALL SELECT DISTINCT c.oid, 'pg_type'::regclass, a.atttypid
        FROM judged c CROSS JOIN LATERAL (SELECT a.atttypid FROM pg_attribute a
            WHERE NOT c.is_child AND a.attrelid = c.oid AND a.attnum > 0 AND a.atttypid >= 16384 OFFSET 0) a)
"""
"""The relations of others that are read (children, and what views and policies read), and the places in them where code
may stand."""

EXPRESSIONS = """
    SELECT concat(i.indexprs, i.indpred) FROM pg_index i
        WHERE r.class = 'pg_class'::regclass AND i.indexrelid = r.object
    UNION ALL SELECT t.partexprs::text FROM pg_partitioned_table t
        WHERE r.class = 'pg_class'::regclass AND t.partrelid = r.object
    UNION ALL SELECT to_jsonb(s) ->> 'stxexprs' FROM pg_statistic_ext s
        WHERE r.class = 'pg_statistic_ext'::regclass AND s.oid = r.object
    UNION ALL SELECT k.conbin::text FROM pg_constraint k WHERE r.class = 'pg_constraint'::regclass AND k.oid = r.object
    UNION ALL SELECT concat(p.polqual, p.polwithcheck) FROM pg_policy p
        WHERE r.class = 'pg_policy'::regclass AND p.oid = r.object
    UNION ALL SELECT concat(w.ev_qual, w.ev_action) FROM pg_rewrite w
        WHERE r.class = 'pg_rewrite'::regclass AND w.oid = r.object
    UNION ALL SELECT e.adbin::text FROM pg_attrdef e WHERE r.class = 'pg_attrdef'::regclass AND e.oid = r.object
    UNION ALL SELECT g.tgqual::text FROM pg_trigger g WHERE r.class = 'pg_trigger'::regclass AND g.oid = r.object
    UNION ALL SELECT t.typdefaultbin::text FROM pg_type t WHERE r.class = 'pg_type'::regclass AND t.oid = r.object"""
"""The expressions that an object consists of."""

NAMED = r"(?i):(?:\w*funcid|aggfnoid|winfnoid) (\d+)|:(?!\w*typ(?:e?mod|len|byval))\w*typ\w* (?:\(o )?(\d+(?: \d+)*)"
"""Functions, and types, in the text of an expression."""

OWNERS = f"""{PLACES}
SELECT min(c.oid)::regclass::text AS relation, quote_ident(pg_get_userbyid(c.relowner)) AS owner, c.is_trusted,
    (SELECT count(*) FROM places) AS n_places
FROM judged c GROUP BY c.relowner, c.is_trusted ORDER BY c.is_trusted, c.relowner
"""
"""Whose relations are read that are not the readers' own, and in how many places code may stand."""

CODE = f"""{PLACES},
reached(relation, place_class, place, class, object) AS (
    SELECT p.relation, p.class, p.object, p.class, p.object FROM places p
    UNION SELECT r.relation, r.place_class, r.place, x.class, x.object FROM reached r CROSS JOIN LATERAL (
        SELECT d.refclassid::regclass, d.refobjid FROM pg_depend d WHERE d.classid = r.class AND d.objid = r.object
            AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass,
                'pg_opclass'::regclass, 'pg_class'::regclass)
            -- What a function calls is its owner's affair; an aggregate consists of functions.
            AND (r.class <> 'pg_proc'::regclass
                OR EXISTS (SELECT FROM pg_proc f WHERE f.oid = r.object AND f.prokind = 'a'))
            -- Relations are read in their own right; here only the columns of composite types count.
            AND (d.refclassid <> 'pg_class'::regclass OR r.class = 'pg_type'::regclass)
        -- Nothing depends on what PostgreSQL came with, nor an expression on the types of its columns.
        UNION ALL SELECT CASE WHEN m[1] IS NULL THEN 'pg_type'::regclass ELSE 'pg_proc'::regclass END, n::oid
            FROM ({EXPRESSIONS}) e(source) CROSS JOIN LATERAL regexp_matches(e.source, '{NAMED}', 'g') m
            CROSS JOIN LATERAL regexp_split_to_table(coalesce(m[1], m[2]), ' ') n
            WHERE m[1] IS NOT NULL OR n::oid >= 16384
        -- A type of its own does not depend on its columns, nor an operator on those that may take its place.
        UNION ALL SELECT 'pg_class'::regclass, t.typrelid FROM pg_type t
            WHERE r.class = 'pg_type'::regclass AND t.oid = r.object AND t.typrelid <> 0
        UNION ALL SELECT n.class, n.object FROM pg_operator o CROSS JOIN LATERAL (VALUES
            ('pg_proc'::regclass, o.oprcode::oid), ('pg_operator'::regclass, o.oprnegate),
            ('pg_operator'::regclass, o.oprcom)) n(class, object)
            WHERE r.class = 'pg_operator'::regclass AND o.oid = r.object AND n.object <> 0
        UNION ALL SELECT 'pg_constraint'::regclass, k.oid FROM pg_constraint k
            WHERE r.class = 'pg_type'::regclass AND k.contypid = r.object
        -- Functions of JSON ask for these, and in an expression those of any type that are written in SQL.
        UNION ALL SELECT 'pg_proc'::regclass, k.castfunc FROM pg_cast k WHERE r.class = 'pg_type'::regclass
            AND k.castsource = r.object AND k.castfunc <> 0 AND (k.casttarget IN ('json'::regtype, 'jsonb'::regtype)
                OR k.casttarget = 'text'::regtype AND r.place_class <> 'pg_type'::regclass)
        UNION ALL SELECT 'pg_proc'::regclass, p.amproc::oid
            FROM pg_opclass o JOIN pg_amproc p ON p.amprocfamily = o.opcfamily
            WHERE r.class = 'pg_opclass'::regclass AND o.oid = r.object
        UNION ALL SELECT 'pg_operator'::regclass, p.amopopr
            FROM pg_opclass o JOIN pg_amop p ON p.amopfamily = o.opcfamily
            WHERE r.class = 'pg_opclass'::regclass AND o.oid = r.object) x(class, object))
SELECT 'function ' || f.oid::regprocedure AS code, pg_describe_object(r.place_class, r.place, 0)
    || CASE WHEN r.place_class IN ('pg_class'::regclass, 'pg_type'::regclass, 'pg_statistic_ext'::regclass)
        THEN ' of ' || r.relation::regclass ELSE '' END AS place,
    quote_ident(pg_get_userbyid(f.proowner)) AS owner, quote_ident(pg_get_userbyid(c.relowner)) AS relation_owner,
    f.xmin::text AS version, x.is_foreign
FROM reached r JOIN judged c ON c.oid = r.relation
-- OFFSET 0: not all functions for each relation.
CROSS JOIN LATERAL (SELECT f.*, f.xmin FROM pg_proc f
    WHERE r.class = 'pg_proc'::regclass AND f.oid = r.object OFFSET 0) f
CROSS JOIN LATERAL (SELECT NOT ({trusted_sql("f.proowner")} AND (c.is_trusted OR {HARMLESS})) AS is_foreign) x
WHERE x.is_foreign OR f.oid >= 16384
UNION ALL
-- Where a foreign table gets its rows, and as whom, its owner and that of its server say.
SELECT 'foreign server ' || quote_ident(s.srvname), 'foreign table ' || c.oid::regclass,
    quote_ident(pg_get_userbyid(CASE WHEN c.is_trusted THEN s.srvowner ELSE c.relowner END)),
    quote_ident(pg_get_userbyid(c.relowner)), '', true
FROM judged c JOIN pg_foreign_table t ON t.ftrelid = c.oid JOIN pg_foreign_server s ON s.oid = t.ftserver
WHERE NOT (c.is_trusted AND {trusted_sql("s.srvowner")})
"""
"""Code that reading the relation would run, as far as PostgreSQL did not come with it.

An expression of an owner whom the readers trust may call any function of roles that they trust. One of a stranger may
only call functions that do nothing, whatever arguments they get: PostgreSQL has functions that run a text.
"""
