#!/usr/bin/env bash
# The operational data store of the TAC paper (T, section 4.2): 500 of TPC-H's queries 2, 5, 9, 11 and
# 17, each kept to a range at a random place. Recorded once, then simulated as T simulates: reads go
# to the disk of its section 4.1 or to its flash card. The figures behind evaluation/results/ods.md.
#
#   evaluation/workloads/ods.sh [OUT]
#
# Needs what tpch.sh needs. Parameters here and in lib.sh, each to be overridden by the environment.
set -euo pipefail

: "${SCALE:=0.1}"         # T: 10
: "${QUERIES:=500}"
: "${MEMORY:=1.07}"       # shared_buffers in per cent of the database: T's 160 MB of 15 GB

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(realpath -m "${1:-$here/../../target/ods}")
mkdir -p "$out"
# shellcheck source=lib.sh
source "$here/lib.sh"

fill() {
    load_tpch "$SCALE"
    sql << 'SQL'
ALTER TABLE region ADD PRIMARY KEY (r_regionkey);
ALTER TABLE nation ADD PRIMARY KEY (n_nationkey);
ALTER TABLE part ADD PRIMARY KEY (p_partkey);
ALTER TABLE supplier ADD PRIMARY KEY (s_suppkey);
ALTER TABLE partsupp ADD PRIMARY KEY (ps_partkey, ps_suppkey);
ALTER TABLE customer ADD PRIMARY KEY (c_custkey);
ALTER TABLE orders ADD PRIMARY KEY (o_orderkey);
ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber);
CREATE INDEX lineitem_part_supp ON lineitem (l_partkey, l_suppkey);
CREATE INDEX partsupp_supplier ON partsupp (ps_suppkey);
CREATE INDEX orders_customer ON orders (o_custkey);
SQL
}
if [[ ! -e $traces/bytes ]]; then
    server
    load "ods-$SCALE" fill
    record_queries ods ods "$QUERIES" "$SCALE"
fi
"$python" "$here/tac.py" ods "$traces" "$out" "$thermocline"
