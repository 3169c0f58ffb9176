-- When what is published goes.
CREATE VIEW mine AS
SELECT r.relation, h.operator FROM thermocline_hints() h JOIN thermocline_relations() r USING (filenode)
WHERE h.pid = pg_backend_pid() AND filenode >= 16384 AND r.kind = 'r' ORDER BY relation::text;
CREATE TABLE one (k int);
CREATE TABLE two (k int);
INSERT INTO one SELECT generate_series(1, 3);
INSERT INTO two SELECT generate_series(1, 3);

-- A statement sees itself, and nothing is left of it.
SELECT one.k, (SELECT string_agg(relation::text, ' ') FROM mine) AS published
FROM one ORDER BY k LIMIT 1;
SELECT * FROM mine;

-- EXPLAIN alone publishes nothing; EXPLAIN ANALYZE runs the statement.
CREATE FUNCTION seen() RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT coalesce(string_agg(relation::text, ' '), 'nothing') FROM mine $$;
CREATE FUNCTION explained() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'EXPLAIN SELECT * FROM one';
    RETURN seen();
END $$;
SELECT explained();
SELECT * FROM mine;

-- Nested statements: both are published while both run, then the outer one alone.
CREATE FUNCTION nested(OUT inside text, OUT after text) LANGUAGE plpgsql AS $$
BEGIN
    SELECT seen() INTO inside FROM two LIMIT 1;
    after := seen();
END $$;
SELECT n.* FROM one, LATERAL nested() n WHERE one.k = 1;
SELECT * FROM mine;

-- A statement that fails is cleared, with those it ran in.
SELECT 1 / (k - 1) FROM one;
SELECT * FROM mine;
CREATE FUNCTION fails() RETURNS int LANGUAGE plpgsql AS
$$ BEGIN PERFORM 1 / (k - 1) FROM two; RETURN 1; END $$;
SELECT fails() FROM one;
SELECT * FROM mine;

-- An error that is caught clears what failed and leaves what goes on.
CREATE FUNCTION catches() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 / (k - 1) FROM two;
EXCEPTION WHEN division_by_zero THEN RETURN seen();
END $$;
SELECT catches() FROM one LIMIT 1;
SELECT * FROM mine;

-- Cursors overlap, close in any order, and go with their transaction or savepoint.
BEGIN;
DECLARE c1 CURSOR FOR SELECT * FROM one;
DECLARE c2 CURSOR FOR SELECT * FROM two;
FETCH c1;
SELECT * FROM mine;
CLOSE c1;
SELECT * FROM mine;
SAVEPOINT s;
DECLARE c3 CURSOR FOR SELECT * FROM one;
SELECT * FROM mine;
ROLLBACK TO s;
SELECT * FROM mine;
ROLLBACK;
SELECT * FROM mine;
-- A holdable cursor is read to its end at commit.
BEGIN;
DECLARE held CURSOR WITH HOLD FOR SELECT * FROM one;
COMMIT;
SELECT * FROM mine;
FETCH held;
CLOSE held;

-- More statements and more relations than there is room for.
CREATE FUNCTION deep(n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN
    IF n = 0 THEN RETURN seen(); END IF;
    SELECT deep(n - 1) INTO r FROM one LIMIT 1;
    RETURN r;
END $$;
SELECT deep(40);
SELECT * FROM mine;
DO $$ BEGIN
    CREATE TABLE many (k int) PARTITION BY RANGE (k);
    FOR i IN 1..60 LOOP
        EXECUTE format('CREATE TABLE many%s PARTITION OF many FOR VALUES FROM (%s) TO (%s)', i, i, i + 1);
    END LOOP;
END $$;
BEGIN;
DECLARE all_of_it CURSOR FOR SELECT * FROM many;
SELECT count(*) FROM mine;
COMMIT;
SELECT * FROM mine;

-- Parallel workers publish their leader, and the leader its plan.
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
CREATE TABLE wide AS SELECT generate_series(1, 20000) AS k;
ANALYZE wide;
ALTER FUNCTION thermocline_hints() PARALLEL SAFE;
ALTER FUNCTION thermocline_slots() PARALLEL SAFE;
CREATE FUNCTION my_leader(int) RETURNS int LANGUAGE sql VOLATILE PARALLEL SAFE AS
$$ SELECT max(leader) FROM thermocline_hints() WHERE pid = pg_backend_pid() $$;
ALTER FUNCTION pg_backend_pid() PARALLEL SAFE;
SET parallel_leader_participation = off;
CREATE FUNCTION leader_relations(int) RETURNS text LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT string_agg(r.relation::text, ' ') FROM thermocline_hints() h
    JOIN thermocline_relations() r USING (filenode)
    WHERE h.pid = my_leader($1) AND filenode >= 16384
$$;
SELECT max(my_leader(k)) = pg_backend_pid() AS led, max(leader_relations(k)) AS by_a_reader_of
FROM wide WHERE k <= 2;
RESET parallel_leader_participation;
SELECT count(*) FROM thermocline_hints() WHERE leader IS NOT NULL;

-- A function that is called for every row keeps no memory for each of its statements.
CREATE TABLE texts (k int PRIMARY KEY, t text);
INSERT INTO texts VALUES (1, 'one');
CREATE FUNCTION text_of(int) RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT t FROM texts WHERE k = $1 $$;
CREATE FUNCTION memory() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE bytes bigint := 0;
BEGIN
    IF to_regclass('pg_backend_memory_contexts') IS NOT NULL THEN -- PostgreSQL 14
        EXECUTE 'SELECT sum(total_bytes) FROM pg_backend_memory_contexts' INTO bytes;
    END IF;
    RETURN bytes;
END $$;
SELECT count(text_of(1)) AS calls,
    max(CASE WHEN k = 50000 THEN memory() END)
        - max(CASE WHEN k = 1000 THEN memory() END) < 1000000 AS nothing_kept
FROM generate_series(1, 50000) k;

-- It can be switched off.
SET thermocline.publish = off;
SELECT k, seen() FROM one ORDER BY k LIMIT 1;
RESET thermocline.publish;
-- No mount here, but a file that stands for one.
SELECT thermocline_stats() IS NULL AS no_mount;
SELECT count(*) > 300 AS relations, bool_and(path LIKE '%' || filenode) AS named
FROM thermocline_relations();
