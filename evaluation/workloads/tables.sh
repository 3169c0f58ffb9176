# shellcheck shell=bash
# TPC-H's data in a PostgreSQL. Sourced where `sql` (a function) asks it, $work/run is a directory that it may
# read, $here is this directory and $venv a virtual environment with tpchgen-cli.

# TPC-H's tables without keys and indexes, in the order they are generated.
load_tpch() { # scale
    "$venv/bin/tpchgen-cli" csv -s "$1" --output-dir "$work/run/csv" > /dev/null
    chmod -R a+rX "$work/run/csv"
    sql < "$here/../captures/tpch.sql"
    sql -c "DO \$\$ DECLARE i regclass; BEGIN
        FOR i IN SELECT c.oid FROM pg_class c WHERE relkind = 'i' AND relnamespace = 'public'::regnamespace LOOP
            IF EXISTS (SELECT FROM pg_constraint WHERE conindid = i) THEN
                EXECUTE (SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname)
                    FROM pg_constraint WHERE conindid = i);
            ELSE EXECUTE 'DROP INDEX ' || i; END IF;
        END LOOP; END \$\$"
    for table in region nation part supplier partsupp customer orders lineitem; do
        sql -c "\\copy $table FROM '$work/run/csv/$table.csv' CSV HEADER"
        rm "$work/run/csv/$table.csv"
    done
}

# The nine indexes of hStorage-DB (table 3 of its paper).
index_tpch() {
    sql << 'SQL'
CREATE INDEX l_partkey ON lineitem (l_partkey);
CREATE INDEX l_orderkey ON lineitem (l_orderkey);
CREATE INDEX o_orderkey ON orders (o_orderkey);
CREATE INDEX ps_partkey ON partsupp (ps_partkey);
CREATE INDEX p_partkey ON part (p_partkey);
CREATE INDEX c_custkey ON customer (c_custkey);
CREATE INDEX s_suppkey ON supplier (s_suppkey);
CREATE INDEX r_regionkey ON region (r_regionkey);
CREATE INDEX n_nationkey ON nation (n_nationkey);
SQL
}
