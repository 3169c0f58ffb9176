-- As read.sql, and the row's balance changes: one page of the table, dirty.
\set row 1 + permute(random_zipfian(1, :rows, :skew) - 1, :rows, 42)
\set delta random(-5000, 5000)
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :row;
