#!/usr/bin/env bash
# The data warehouse of the TAC paper (T, section 4.2): 100 of TPC-H's queries 1, 6, 14 and 15 over
# Zipf-distributed ship dates, lineitem clustered by ship date. Recorded once, then simulated as
# ods.sh does. The figures behind evaluation/results/zipf.md.
#
#   evaluation/workloads/zipf.sh [OUT]
#
# Needs what tpch.sh needs. Parameters here and in lib.sh, each to be overridden by the environment.
set -euo pipefail

: "${SCALE:=0.2}"         # T: 10
: "${QUERIES:=100}"
: "${MEMORY:=1.07}"       # shared_buffers in per cent of the database: T's 160 MB of 15 GB

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(realpath -m "${1:-$here/../../target/zipf}")
mkdir -p "$out"
# shellcheck source=lib.sh
source "$here/lib.sh"

fill() {
    load_tpch "$SCALE"
    sql << 'SQL'
CREATE INDEX lineitem_shipdate ON lineitem (l_shipdate);
CLUSTER lineitem USING lineitem_shipdate;
ALTER TABLE part ADD PRIMARY KEY (p_partkey);
ALTER TABLE supplier ADD PRIMARY KEY (s_suppkey);
ALTER TABLE orders ADD PRIMARY KEY (o_orderkey);
ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber);
CREATE INDEX lineitem_part_supp ON lineitem (l_partkey, l_suppkey);
SQL
}
if [[ ! -e $traces/bytes ]]; then
    server
    load "zipf-$SCALE" fill
    record_queries zipf zipf "$QUERIES"
fi
"$python" "$here/tac.py" zipf "$traces" "$out" "$thermocline"
