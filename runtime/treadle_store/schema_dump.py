"""The schema as its database has it, in SQL: `schema.sql` is this, committed and proven fresh by a test.

Not pg_dump: its output changes from version to version, this only with our migrations.
"""

from typing import Final

from treadle_store.pool import Connection

_HEADER: Final = """\
-- Generated: `treadle-migrate dump-schema`. Read it, never edit it; the migrations are the source.
"""

_TABLES: Final = """
SELECT 'CREATE TABLE treadle.' || c.relname || E' (\\n' || (
         SELECT string_agg('  ' || quote_ident(a.attname) || ' ' || format_type(a.atttypid, a.atttypmod)
                  || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
                  || coalesce(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), ''), E',\\n' ORDER BY a.attnum)
           FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
          WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) || E'\\n)'
       || coalesce(' WITH (' || array_to_string(c.reloptions, ', ') || ')', '') || ';'
  FROM pg_class c WHERE c.relnamespace = 'treadle'::regnamespace AND c.relkind = 'r' ORDER BY c.relname"""

_CONSTRAINTS: Final = """
SELECT 'ALTER TABLE treadle.' || c.relname || ' ADD CONSTRAINT ' || n.conname || ' ' ||
pg_get_constraintdef(n.oid) || ';'
  FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid
 WHERE n.connamespace = 'treadle'::regnamespace AND n.contype <> 'n' ORDER BY c.relname, n.conname"""

_INDEXES: Final = """
SELECT pg_get_indexdef(i.indexrelid) || ';'
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
 WHERE c.relnamespace = 'treadle'::regnamespace AND i.indrelid::regclass::text LIKE 'treadle.%'
   AND NOT EXISTS (SELECT 1 FROM pg_constraint n WHERE n.conindid = i.indexrelid AND n.contype IN ('p', 'u'))
 ORDER BY c.relname"""

_FUNCTIONS: Final = """
SELECT pg_get_functiondef(p.oid) || ';'
  FROM pg_proc p WHERE p.pronamespace = 'treadle'::regnamespace ORDER BY p.proname,
  p.oid::regprocedure::text"""

_VIEWS: Final = """
SELECT 'CREATE VIEW treadle.' || c.relname || E' AS\\n' || pg_get_viewdef(c.oid, true)
  FROM pg_class c WHERE c.relnamespace = 'treadle'::regnamespace AND c.relkind = 'v' ORDER BY c.relname"""

# Rights of everybody but the owner: on tables, on columns, on functions.
_GRANTS: Final = """
SELECT 'GRANT ' || g.privilege_type || ' ON ' || o.what || ' TO ' || g.grantee::regrole::text || ';'
  FROM (SELECT c.relacl AS acl, 'treadle.' || c.relname AS what
          FROM pg_class c WHERE c.relnamespace = 'treadle'::regnamespace
        UNION ALL
        SELECT a.attacl, 'treadle.' || c.relname || ' (' || a.attname || ')'
          FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace =
          'treadle'::regnamespace
        UNION ALL
        SELECT p.proacl, 'FUNCTION ' || p.oid::regprocedure::text
          FROM pg_proc p WHERE p.pronamespace = 'treadle'::regnamespace) o,
       aclexplode(o.acl) g
 WHERE g.grantee <> 'treadle_owner'::regrole ORDER BY 1"""


async def dump_schema(connection: Connection) -> str:
    """Tables, constraints, indexes, functions, views and rights of schema `treadle`, in a fixed order."""
    parts = [_HEADER]
    for query in (_TABLES, _CONSTRAINTS, _INDEXES, _FUNCTIONS, _VIEWS, _GRANTS):
        parts.append("\n".join(row[0] for row in await connection.fetch(query)))
    return "\n".join(parts) + "\n"
