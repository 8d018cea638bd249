"""What a schema is made of, read from PostgreSQL's catalog, in a form that two databases can be compared by."""

import psycopg

QUERIES = {
    "relations": """
        SELECT c.relname, c.relkind::text, c.reloptions, pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid)
        FROM pg_class AS c WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
        ORDER BY 1""",
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
               pg_get_expr(d.adbin, d.adrelid), row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum)
        FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind IN ('r', 'p') ORDER BY 1, 7""",
    "constraints": """
        SELECT c.relname, k.conname, pg_get_constraintdef(k.oid), k.convalidated
        FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
        WHERE c.relnamespace = %(schema)s::regnamespace ORDER BY 1, 2""",
    "indexes": """
        SELECT c.relname, pg_get_indexdef(i.indexrelid), i.indisvalid
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid
        WHERE c.relnamespace = %(schema)s::regnamespace ORDER BY 1, 2""",
}


def describe(conn: "psycopg.Connection[tuple[object, ...]]", schema: str) -> dict[str, list[tuple[object, ...]]]:
    """Return relations, columns, constraints and indexes of a schema."""
    return {part: conn.execute(query.encode(), {"schema": schema}).fetchall() for part, query in QUERIES.items()}
