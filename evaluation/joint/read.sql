-- Zipf over rows, the hot ones spread over all of the table: each is on a page of its own.
\set row 1 + permute(random_zipfian(1, :rows, :skew) - 1, :rows, 42)
SELECT abalance FROM pgbench_accounts WHERE aid = :row;
