"""Places where PostgreSQL calls functions: a function of mallory's is planted in each, and notes if another runs it.

It notes by a sequence, which no rollback takes back.
"""

from __future__ import annotations

from typing import NamedTuple

SETUP = """
CREATE SEQUENCE mallory.ran;
GRANT USAGE ON SCHEMA mallory TO PUBLIC;
GRANT USAGE ON SEQUENCE mallory.ran TO PUBLIC;
CREATE FUNCTION mallory.note() RETURNS void LANGUAGE plpgsql AS
    'BEGIN IF current_user <> ''mallory'' THEN PERFORM nextval(''mallory.ran''); END IF; END';
CREATE FUNCTION mallory.f(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN PERFORM mallory.note(); RETURN $1; END';
CREATE FUNCTION mallory.f2(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN PERFORM mallory.note(); RETURN $1 + $2; END';
CREATE FUNCTION mallory.b(int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN PERFORM mallory.note(); RETURN true; END';
CREATE FUNCTION mallory.v(int) RETURNS bool LANGUAGE plpgsql AS 'BEGIN PERFORM mallory.note(); RETURN true; END';
CREATE FUNCTION mallory.t() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM mallory.note(); IF TG_LEVEL = ''ROW'' THEN RETURN NEW; END IF; RETURN NULL; END';
CREATE OPERATOR mallory.@+@ (FUNCTION = mallory.f2, LEFTARG = int, RIGHTARG = int);
CREATE AGGREGATE mallory.total(int) (SFUNC = mallory.f2, STYPE = int, INITCOND = 0);
CREATE DOMAIN mallory.small AS int;
CREATE TYPE mallory.mood AS ENUM ('low', 'high');
CREATE TYPE mallory.json_mood AS ENUM ('low', 'high');
CREATE FUNCTION mallory.told(mallory.mood) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN PERFORM mallory.note(); RETURN ''x''; END';
CREATE FUNCTION mallory.told_json(mallory.json_mood) RETURNS json LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN PERFORM mallory.note(); RETURN ''1''; END';
CREATE CAST (mallory.mood AS text) WITH FUNCTION mallory.told(mallory.mood) AS ASSIGNMENT;
CREATE CAST (mallory.json_mood AS json) WITH FUNCTION mallory.told_json(mallory.json_mood);
CREATE TYPE mallory.pair AS (a int);
CREATE DOMAIN mallory.checked AS int CHECK (mallory.v(VALUE));
CREATE TYPE mallory.holder AS (a mallory.checked);
CREATE FUNCTION mallory.b2(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN PERFORM mallory.note(); RETURN true; END';
CREATE OPERATOR mallory.!@ (FUNCTION = mallory.b2, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR mallory.@@ (FUNCTION = int4lt, LEFTARG = int, RIGHTARG = int, NEGATOR = OPERATOR(mallory.!@));
CREATE OPERATOR mallory.@> (FUNCTION = ts_rewrite, LEFTARG = tsquery, RIGHTARG = text);
CREATE TABLE mallory.parts (id int) PARTITION BY HASH ((id + mallory.f(1)));
CREATE TABLE mallory.part PARTITION OF mallory.parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE FUNCTION mallory.told(mallory.pair) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN PERFORM mallory.note(); RETURN ''x''; END';
CREATE CAST (mallory.pair AS text) WITH FUNCTION mallory.told(mallory.pair) AS IMPLICIT;
"""
TABLE = """
CREATE TABLE mallory.{t} AS SELECT i AS id, sin(i) AS x, (ARRAY['no', 'yes'])[1 + i % 2] AS y
FROM generate_series(1, 120) i;
"""
GRANT = "GRANT ALL ON ALL TABLES IN SCHEMA mallory TO PUBLIC"
OUT = """
CREATE TABLE mallory.{t} (id int, predicted_label text, probability float8);
INSERT INTO mallory.{t} VALUES (1, 'no', 0.5);
"""
TEXT = "query_to_xml('SELECT mallory.v(1)', true, true, '') IS NOT NULL"
SETUP += f"CREATE DOMAIN mallory.by_text AS int CHECK ({TEXT});"


class Place(NamedTuple):
    """Where a function is planted in a table mallory.{t}: what mallory says, and a plain statement that runs it."""

    plant: str
    control: str = "SELECT count(*) FROM mallory.{t} WHERE id > 0"
    table: str = TABLE
    reader: str = "anna"


# Of what these run, pg_depend knows less, or nothing.
CONDITIONS = {
    "text that becomes a composite": "('(' || id || ')')::mallory.holder IS NOT NULL",
    "text that becomes an array": "('{{' || id || '}}')::mallory.checked[] IS NOT NULL",
    "JSON that becomes a record": "jsonb_populate_record(NULL::mallory.holder, jsonb_build_object('a', id))"
    " IS NOT NULL",
    "JSON that becomes records": "EXISTS (SELECT FROM jsonb_populate_recordset(NULL::mallory.holder,"
    " jsonb_build_array(jsonb_build_object('a', id))) WHERE a > 0)",
    "JSON that becomes columns": "EXISTS (SELECT FROM json_to_record(json_build_object('a', id))"
    " AS r (a mallory.checked) WHERE a > 0)",
    "negator of an operator": "NOT (id OPERATOR(mallory.@@) 0)",
    "operator that runs a text": "'a'::tsquery OPERATOR(mallory.@>)"
    " 'SELECT ''a''::tsquery, ''b''::tsquery WHERE mallory.v(1)' IS NOT NULL",
    "domain that runs a text": "id::mallory.by_text > 0",
    "cast by quote_literal": "quote_literal((ARRAY['low', 'high'])[1 + id % 2]::mallory.mood) <> ''",
    "cast by ||": "id::text || (ARRAY['low', 'high'])[1 + id % 2]::mallory.mood <> ''",
    "key of a partition": "pg_get_partition_constraintdef(to_regclass('mallory.' || 'part')) IS NOT NULL",
    "key of a partitioned table": "satisfies_hash_partition(to_regclass('mallory.' || 'parts'), 2, 0, id) IS NOT NULL",
}
READ = {
    "index expression": Place("CREATE INDEX ON mallory.{t} ((mallory.f(1)))"),
    "index predicate": Place("CREATE INDEX ON mallory.{t} (x) WHERE mallory.b(1)"),
    "operator in an index": Place("CREATE INDEX ON mallory.{t} ((1 OPERATOR(mallory.@+@) 2))"),
    "statistics": Place("CREATE STATISTICS mallory.{t}_s ON (mallory.f(1)), id FROM mallory.{t}"),
    "CHECK of a child": Place(
        "CREATE TABLE mallory.{t}_c () INHERITS (mallory.{t}); ALTER TABLE mallory.{t}_c ADD CHECK (mallory.b(1))"
    ),
    "index of a child": Place(
        "CREATE TABLE mallory.{t}_c () INHERITS (mallory.{t}); CREATE INDEX ON mallory.{t}_c ((mallory.f(1)))"
    ),
    "CHECK": Place(
        "ALTER TABLE mallory.{t} ADD CHECK (mallory.b(1))",
        "SET constraint_exclusion = on; SELECT count(*) FROM mallory.{t} WHERE id > 0",
    ),
    "partition key": Place(
        "CREATE TABLE mallory.{t}_d PARTITION OF mallory.{t} DEFAULT",
        table="CREATE TABLE mallory.{t} (id int, x float8, y text) PARTITION BY RANGE ((id + mallory.f(1)));",
    ),
    "index of a partition": Place(
        "CREATE TABLE mallory.{t}_d PARTITION OF mallory.{t} DEFAULT; CREATE INDEX ON mallory.{t}_d ((mallory.f(1)))",
        table="CREATE TABLE mallory.{t} (id int, x float8, y text) PARTITION BY RANGE (id);",
    ),
    "policy": Place(
        "CREATE POLICY p ON mallory.{t} USING (mallory.v(id)); ALTER TABLE mallory.{t} ENABLE ROW LEVEL SECURITY"
    ),
    "policy that runs a text": Place(
        f"CREATE POLICY p ON mallory.{{t}} USING ({TEXT}); ALTER TABLE mallory.{{t}} ENABLE ROW LEVEL SECURITY"
    ),
    "policy over another table": Place(
        "CREATE TABLE mallory.{t}_o AS SELECT 1 AS a; CREATE INDEX ON mallory.{t}_o ((mallory.f(1)));"
        " CREATE POLICY p ON mallory.{t} USING (EXISTS (SELECT FROM mallory.{t}_o));"
        " ALTER TABLE mallory.{t} ENABLE ROW LEVEL SECURITY"
    ),
    "view": Place(
        "ALTER TABLE mallory.{t} RENAME TO {t}_t;"
        " CREATE VIEW mallory.{t} AS SELECT * FROM mallory.{t}_t WHERE mallory.v(id)"
    ),
    "view that runs a text": Place(
        f"ALTER TABLE mallory.{{t}} RENAME TO {{t}}_t;"
        f" CREATE VIEW mallory.{{t}} AS SELECT * FROM mallory.{{t}}_t WHERE {TEXT}"
    ),
    "view with an aggregate": Place(
        "ALTER TABLE mallory.{t} RENAME TO {t}_t; CREATE VIEW mallory.{t} AS"
        " SELECT mallory.total(id) AS id, x, y FROM mallory.{t}_t GROUP BY x, y"
    ),
    "view with a cast to JSON": Place(
        "ALTER TABLE mallory.{t} RENAME TO {t}_t; ALTER TABLE mallory.{t}_t ADD m mallory.json_mood DEFAULT 'low';"
        " CREATE VIEW mallory.{t} AS SELECT * FROM mallory.{t}_t WHERE to_json(m)::text <> ''"
    ),
    "view of a view": Place(
        "ALTER TABLE mallory.{t} RENAME TO {t}_t; CREATE INDEX ON mallory.{t}_t ((mallory.f(1)));"
        " CREATE VIEW mallory.{t}_v AS SELECT * FROM mallory.{t}_t;"
        " CREATE VIEW mallory.{t} AS SELECT * FROM mallory.{t}_v"
    ),
    "view with a domain": Place(
        "ALTER DOMAIN mallory.small ADD CHECK (mallory.v(VALUE)); ALTER TABLE mallory.{t} RENAME TO {t}_t;"
        " CREATE VIEW mallory.{t} AS SELECT id::mallory.small AS id, x, y FROM mallory.{t}_t"
    ),
    **{
        f"view with a {name}": Place(
            "ALTER TABLE mallory.{t} RENAME TO {t}_t;"
            f" CREATE VIEW mallory.{{t}} AS SELECT * FROM mallory.{{t}}_t WHERE {condition}"
        )
        for name, condition in CONDITIONS.items()
    },
    "index that looks at a partitioned table": Place(
        "DO $$ BEGIN EXECUTE format('CREATE INDEX ON mallory.{t} (id) WHERE satisfies_hash_partition(%s, 2, 0, 1)',"
        " 'mallory.parts'::regclass::oid); END $$"
    ),
    "index of a materialized view": Place(
        "ALTER TABLE mallory.{t} RENAME TO {t}_t; CREATE MATERIALIZED VIEW mallory.{t} AS SELECT * FROM mallory.{t}_t;"
        " CREATE INDEX ON mallory.{t} ((mallory.f(1)))"
    ),
    # Without a password only a superuser gets through, and then acts as whom mallory names.
    "foreign table": Place(
        "CREATE VIEW mallory.{t}_v AS SELECT * FROM mallory.{t} WHERE mallory.v(id);"
        " CREATE SERVER {t}_s FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{host}', port '{port}', dbname '{db}');"
        " CREATE USER MAPPING FOR PUBLIC SERVER {t}_s OPTIONS (user 'postgres');"
        " ALTER TABLE mallory.{t} RENAME TO {t}_t; CREATE FOREIGN TABLE mallory.{t} (id int, x float8, y text)"
        " SERVER {t}_s OPTIONS (schema_name 'mallory', table_name '{t}_v')",
        reader="root",
    ),
    # Nothing of these runs when rows are read as they are; ours are read so.
    "casts": Place(
        "ALTER TABLE mallory.{t} ADD m mallory.mood DEFAULT 'low', ADD p mallory.pair,"
        " ALTER y TYPE mallory.mood USING CASE y WHEN 'no' THEN 'low'::mallory.mood ELSE 'high' END;"
        " UPDATE mallory.{t} SET p = ROW(id)::mallory.pair",
        "SELECT m::text FROM mallory.{t}",
    ),
    "domain": Place("ALTER TABLE mallory.{t} ADD d mallory.small DEFAULT 1", "SELECT 1::mallory.small"),
    "what runs on writing": Place(
        "ALTER TABLE mallory.{t} ALTER id SET DEFAULT mallory.f(1); CREATE TRIGGER g BEFORE INSERT ON mallory.{t}"
        " FOR EACH ROW EXECUTE FUNCTION mallory.t(); CREATE RULE r AS ON INSERT TO mallory.{t} DO ALSO SELECT"
        " mallory.v(1)",
        "INSERT INTO mallory.{t} VALUES (1000, 1, 'no')",
    ),
    "generated column": Place(
        "ALTER TABLE mallory.{t} ADD g int GENERATED ALWAYS AS (mallory.f(id)) STORED",
        "INSERT INTO mallory.{t} (id) VALUES (1000)",
    ),
}
WRITE = {
    name: Place(plant, "INSERT INTO mallory.{t} VALUES (2, 'no', 0.5)", OUT)
    for name, plant in {
        "trigger of rows": "CREATE TRIGGER g BEFORE INSERT ON mallory.{t} FOR EACH ROW EXECUTE FUNCTION mallory.t()",
        "trigger of statements": "CREATE TRIGGER g AFTER INSERT ON mallory.{t} EXECUTE FUNCTION mallory.t()",
        "rule": "CREATE RULE r AS ON INSERT TO mallory.{t} DO ALSO SELECT mallory.v(1)",
        "default": "ALTER TABLE mallory.{t} ADD a int DEFAULT mallory.f(1)",
        "generated column": "ALTER TABLE mallory.{t} ADD a int GENERATED ALWAYS AS (mallory.f(id)) STORED",
        "CHECK": "ALTER TABLE mallory.{t} ADD CHECK (mallory.b(id))",
        "domain": "ALTER TABLE mallory.{t} ALTER id TYPE mallory.small",
        "default of a domain": f"CREATE DOMAIN mallory.{{t}}_d AS bool DEFAULT ({TEXT});"
        " ALTER TABLE mallory.{t} ADD a mallory.{t}_d",
        "index": "CREATE INDEX ON mallory.{t} ((mallory.f(id)))",
        "policy": "CREATE POLICY p ON mallory.{t} USING (true) WITH CHECK (mallory.v(id));"
        " ALTER TABLE mallory.{t} ENABLE ROW LEVEL SECURITY",
        "partition key": "DROP TABLE mallory.{t}; CREATE TABLE mallory.{t} (id int, predicted_label text, probability"
        " float8) PARTITION BY RANGE ((mallory.f(id))); CREATE TABLE mallory.{t}_d PARTITION OF mallory.{t} DEFAULT",
        "constraint trigger": "CREATE CONSTRAINT TRIGGER g AFTER INSERT ON mallory.{t} DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION mallory.t()",
    }.items()
}
SUPERUSERS_ONLY = {
    "event trigger": "CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION mallory.e()",
    "operator class": "CREATE OPERATOR CLASS mallory.o FOR TYPE int USING btree AS FUNCTION 1 mallory.f2(int, int)",
    "text search template": "CREATE TEXT SEARCH TEMPLATE mallory.s (LEXIZE = dsimple_lexize)",
    "base type": "CREATE TYPE mallory.base (INPUT = int4in, OUTPUT = int4out)",
    "foreign-data wrapper": "CREATE FOREIGN DATA WRAPPER mallory_w",
    "language": "CREATE LANGUAGE mallory_l HANDLER plpython3_call_handler",
    "access method": "CREATE ACCESS METHOD mallory_a TYPE TABLE HANDLER heap_tableam_handler",
}
"""Places in which only a superuser may plant a function."""
