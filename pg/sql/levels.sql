-- What plans publish: levels and kinds of access by hStorage-DB section 4.2.
CREATE EXTENSION thermocline;
SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_sort = off;
SET enable_material = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off;
SET join_collapse_limit = 1; SET from_collapse_limit = 1;
SET max_parallel_workers_per_gather = 0;
-- PostgreSQL 14 has this one: a cache between a join and its inner side.
DO $$ BEGIN
    IF current_setting('server_version_num')::int >= 140000 THEN SET enable_memoize = off; END IF;
END $$;

-- What this session publishes, by name; with the priority of function (1) for n1 = 2, n2 = 5.
CREATE VIEW published AS
SELECT r.relation, h.level, h.sequential, h.random, h.operator,
       CASE WHEN h.random THEN 2 + CASE
           WHEN g.high - g.low <= 3 THEN h.level - g.low
           ELSE 3 * (h.level - g.low) / (g.high - g.low) END END AS priority
FROM thermocline_hints() h
JOIN thermocline_relations() r USING (filenode)
CROSS JOIN (SELECT min(level) AS low, max(level) AS high FROM thermocline_hints()
            WHERE pid = pg_backend_pid() AND database <> 0 AND filenode >= 16384) g
WHERE h.pid = pg_backend_pid() AND filenode >= 16384 ORDER BY relation::text;

CREATE TABLE a (k int PRIMARY KEY, other int UNIQUE);
CREATE TABLE b (k int PRIMARY KEY, other int);
CREATE TABLE c (k int PRIMARY KEY, other int);

-- Figure 2. Root at level 5, a blocking operator at 4 beside the index scan of c; below it a scan
-- of b at 0, index scans of a at 0 and 1, of b at 2.
BEGIN;
DECLARE figure2 CURSOR FOR
SELECT * FROM (
    SELECT DISTINCT b2.other
    FROM ((b b1 JOIN a a1 ON a1.k = b1.other) JOIN a a2 ON a2.k = a1.other)
         JOIN b b2 ON b2.k = a2.other) low
JOIN c ON c.k = low.other;
SELECT * FROM published;
COMMIT;

-- Query 9 (figure 7): supplier 2, orders 3.
CREATE TABLE supplier (k int PRIMARY KEY, nation int);
CREATE TABLE orders (k int PRIMARY KEY, customer int);
CREATE TABLE lineitem (k int, supplier int, part int);
CREATE TABLE part (k int, size int);
INSERT INTO supplier SELECT n, n % 2000 FROM generate_series(1, 10000) n;
INSERT INTO orders SELECT n, n FROM generate_series(1, 10000) n;
INSERT INTO lineitem SELECT n, n, n % 1000 FROM generate_series(1, 10000) n;
INSERT INTO part SELECT n, n FROM generate_series(1, 1000) n;
CREATE INDEX lineitem_k ON lineitem (k);
ANALYZE supplier, orders, lineitem, part;
SET enable_hashjoin = on;
BEGIN;
DECLARE q9 CURSOR FOR
SELECT nation, count(*) FROM
    ((lineitem l JOIN part p ON p.k = l.part AND p.size = 7) JOIN supplier s ON s.k = l.supplier)
    JOIN orders o ON o.k = l.k
GROUP BY nation;
SELECT * FROM published;
COMMIT;

-- Query 21 (figure 8): orders 2, lineitem 3, and lineitem is scanned as well.
BEGIN;
DECLARE q21 CURSOR FOR
SELECT s.nation, count(*)
FROM (lineitem l1 JOIN supplier s ON s.k = l1.supplier AND s.nation = 7) JOIN orders o ON o.k = l1.k
WHERE EXISTS (SELECT FROM lineitem l2 WHERE l2.k = o.k AND l2.supplier <> l1.supplier)
GROUP BY s.nation;
SELECT * FROM published;
COMMIT;

-- Bitmap scans are one operator; index-only scans read the table too; TOAST goes with its table.
SET enable_bitmapscan = on; SET enable_indexscan = off; SET enable_seqscan = off;
BEGIN;
DECLARE bitmap CURSOR FOR SELECT * FROM lineitem WHERE k = 3;
SELECT * FROM published;
COMMIT;
SET enable_indexonlyscan = on; SET enable_indexscan = on; SET enable_bitmapscan = off;
BEGIN;
DECLARE index_only CURSOR FOR SELECT k FROM lineitem WHERE k = 3;
SELECT * FROM published;
COMMIT;
RESET ALL;
CREATE TABLE long (k int, words text);
BEGIN;
DECLARE toasted CURSOR FOR SELECT * FROM long;
SELECT regexp_replace(relation::text, '\d+', 'N') AS relation, level, sequential, random
FROM published;
COMMIT;

-- Temporary tables say so.
CREATE TEMP TABLE t AS SELECT 1 AS k;
BEGIN;
DECLARE temporary CURSOR FOR SELECT * FROM t;
SELECT r.relation, h.temporary, h.sequential
FROM thermocline_hints() h JOIN thermocline_relations() r USING (filenode)
WHERE h.pid = pg_backend_pid() AND relation = 't'::regclass;
COMMIT;
