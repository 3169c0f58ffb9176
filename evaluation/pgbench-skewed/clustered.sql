-- Zipf over extents of 2,048 rows (34 pages) that are spread over the table; within an extent all
-- rows are alike: recent orders, busy customers, one tenant's rows lie together.
\set extent permute(random_zipfian(1, :extents, :skew) - 1, :extents, 42)
\set row 1 + :extent * 2048 + random(0, 2047)
SELECT abalance FROM pgbench_accounts WHERE aid = :row;
