\echo Use "CREATE EXTENSION thermocline" to load this file. \quit

CREATE FUNCTION thermocline_slots() RETURNS text
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

CREATE FUNCTION thermocline_mount() RETURNS text
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

-- What all sessions publish now. A parallel worker has a row that names its leader and no relation.
CREATE FUNCTION thermocline_hints(
    OUT pid int, OUT leader int, OUT database oid, OUT filenode oid, OUT level int,
    OUT sequential bool, OUT random bool, OUT temporary bool, OUT operator text)
RETURNS SETOF record LANGUAGE sql VOLATILE PARALLEL RESTRICTED AS $$
    SELECT h.pid, h.leader, h.database, h.filenode, nullif(h.level, 255),
           h.access & 1 <> 0, h.access & 2 <> 0, h.access & 4 <> 0,
           (ARRAY['seq-scan', 'sample-scan', 'index-scan', 'index-only-scan', 'bitmap-scan',
                  'tid-scan'])[h.operator]
    FROM json_to_recordset(@extschema@.thermocline_slots()::json) AS h(
        pid int, leader int, database oid, filenode oid, level int, access int, operator int)
$$;

-- The file number of every table and index of this database, and its path below the mount's data
-- directory; what the mount's reports call by that path.
CREATE FUNCTION thermocline_relations(
    OUT filenode oid, OUT path text, OUT relation regclass, OUT kind "char")
RETURNS SETOF record LANGUAGE sql STABLE AS $$
    SELECT pg_relation_filenode(c.oid), pg_relation_filepath(c.oid), c.oid::regclass, c.relkind
    FROM pg_class c WHERE pg_relation_filenode(c.oid) IS NOT NULL
$$;

-- The mount's figures, as `thermocline status --json` shows them; NULL without a mount.
CREATE FUNCTION thermocline_stats() RETURNS jsonb
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_read_file(@extschema@.thermocline_mount() || '/.thermocline/stats.json',
                        0, 16 << 20, true)::jsonb
$$;

REVOKE ALL ON FUNCTION thermocline_slots(), thermocline_mount(), thermocline_hints(),
    thermocline_stats() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION thermocline_slots(), thermocline_mount(), thermocline_hints(),
    thermocline_stats() TO pg_monitor;
