# The traces that policies are compared on; sourced by the scripts beside it. Calls `simulate NAME TRACE
# OPTION...` for each capture, and for each public trace where TRACES says where they are. What is
# given to it follows the trace's own options.

each_trace() {
    local beside capture name page
    beside=$(dirname "${BASH_SOURCE[0]}")
    for capture in "$beside"/../captures/*.parquet; do
        name=$(basename "$capture" .parquet)
        page=8KiB
        if [[ $name == mariadb-* ]]; then page=16KiB; fi
        if [[ $name == mariadb-*-90 ]]; then continue; fi # too few requests
        if [[ $name == *-0 ]]; then continue; fi # for studies with a DRAM pool
        simulate "$name" "$capture" --page-size "$page" "$@"
    done
    if [[ -z $TRACES ]]; then return; fi
    simulate OLTP "$TRACES/OLTP.lis.zst" "$@"
    simulate P3 "$TRACES/P3.lis.zst" "$@"
    simulate cloudPhysicsIO "$TRACES/cloudPhysicsIO.vscsi.xz" --page-size 4KiB "$@"
    simulate pg15-pgbench "$TRACES/pg15_pgbench_below_shared_buffers.csv.xz" --page-size 8KiB \
        --unit 8KiB --columns "$(cat "$beside/pg15.columns")" "$@"
}
