# PostgreSQL for capture.sh: checkpoints every 30 s and a background writer that is awake, so that
# pages are written for each reason there is.
page_size=8KiB
smallest=256 # KiB: with 128, the least it accepts, eight sessions run out of buffers to pin
queries=$(printf 'q%d,' {1..22})
queries=${queries%,}
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)

create() { # data directory
    "${as[@]}" "$bin/initdb" -D "$1" --no-locale --encoding=UTF8 -A trust -U capture > /dev/null
}
start() { # data directory, buffer in KiB
    # No prefetching: posix_fadvise would have the kernel read pages a second time.
    local settings=(listen_addresses=127.0.0.1 "port=$port" "shared_buffers=${2}kB"
        effective_io_concurrency=0 maintenance_io_concurrency=0 synchronous_commit=off
        checkpoint_timeout=30s max_wal_size=8GB bgwriter_delay=20ms bgwriter_lru_multiplier=2
        autovacuum_naptime=20s jit=off)
    if ! "${as[@]}" "$bin/pg_ctl" -D "$1" -w -t 120 -l "$work/run/log" \
        -o "-k $work/run ${settings[*]/#/-c }" start > "$work/start.log"; then
        cat "$work/run/log" >&2
        return 1
    fi
    data=$1
    serving=yes
}
prepare() {
    sql -d postgres -c 'CREATE DATABASE test'
    # go-tpc makes a view with this function of MySQL whatever the server is.
    sql -c "CREATE FUNCTION date_add(text, interval) RETURNS timestamp IMMUTABLE LANGUAGE sql
        AS 'SELECT \$1::date + \$2'"
}
stop() {
    "${as[@]}" "$bin/pg_ctl" -D "$data" -w -m fast stop > /dev/null
    serving=no
}
sql() { # psql's arguments, or statements on standard input
    "${as[@]}" "$bin/psql" -X -A -t -q -h "$work/run" -p "$port" -U capture -d test \
        -v ON_ERROR_STOP=1 "$@"
}
load_table() { sql -c "\\copy $1 FROM '$2' CSV HEADER"; } # table, file
analyze() {
    sql -c 'VACUUM (FREEZE, ANALYZE)'
    sql -c CHECKPOINT
}
bytes() { sql -c "SELECT pg_database_size('test')"; }
names() {
    sql -c "COPY (SELECT 'data/' || pg_relation_filepath(oid), relname FROM pg_class
        WHERE pg_relation_filepath(oid) IS NOT NULL) TO STDOUT (FORMAT csv)"
}
server_version() { sql -c 'SHOW server_version'; }
