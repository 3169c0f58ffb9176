#!/usr/bin/env bash
# What publishing plans costs a statement: an index look-up of one row, run many times by a PL/pgSQL
# loop on a warm table, in short rounds with thermocline.publish on and off in turn. The loop starts
# and ends the executor for each. Prints nanoseconds of the session's CPU time a statement, by the
# scheduler's account: tenths of the rounds, because what else runs makes rounds slower and never faster.
#
#   evaluation/plans/cost.sh [PG_CONFIG [MAKE ARGUMENT...]]
#
# Needs what pg/test.sh needs. Less than a minute.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
rounds=${ROUNDS:-500} statements=${STATEMENTS:-2000}
config=${1:-$(compgen -G "/usr/lib/postgresql/*/bin/pg_config" | sort -V | tail -1)}
shift || true
work=$(mktemp -d "${TMPDIR:-/tmp}/thermocline-cost-XXXXXX")
as=() bin=
if ((EUID == 0)); then as=(runuser -u postgres --); fi
finish() {
    if [[ -n $bin ]]; then "${as[@]}" "$bin/pg_ctl" -D "$work/data" -m fast stop > /dev/null || true; fi
    rm -rf --one-file-system "$work" "/dev/shm/${work##*/}"
}
trap finish EXIT
chmod 755 "$work"
bin=$(pg/private.sh "$config" "$work/pg" "$@")
install -d -m 700 ${as:+-o postgres} "$work/data"
cd "$work/data"
"${as[@]}" "$bin/initdb" -D "$work/data" --no-locale --auth=trust --username=postgres > /dev/null
"${as[@]}" mkdir "$work/data/.thermocline"
"${as[@]}" tee "$work/data/.thermocline/hints" <<< "/dev/shm/${work##*/}" > /dev/null
"${as[@]}" "$bin/pg_ctl" -D "$work/data" -w -l "$work/data/log" start > /dev/null -o "-k $work/data \
    -c listen_addresses= -c shared_preload_libraries=thermocline -c jit=off -c autovacuum=off"
"${as[@]}" "$bin/psql" -h "$work/data" -U postgres -XAtq -v ON_ERROR_STOP=1 << SQL
CREATE TABLE a (k int PRIMARY KEY, v int);
INSERT INTO a SELECT n, n FROM generate_series(1, 1000) n;
VACUUM ANALYZE a;
SET enable_bitmapscan = off; SET enable_seqscan = off; SET enable_indexonlyscan = off;
CREATE TABLE times (publish bool, ns float8);
CREATE FUNCTION cpu() RETURNS float8 LANGUAGE sql VOLATILE AS \$\$
    SELECT split_part(pg_read_file('/proc/' || pg_backend_pid() || '/schedstat', 0, 100), ' ', 1)::float8
\$\$;
CREATE FUNCTION look_up(n int) RETURNS float8 LANGUAGE plpgsql AS \$\$
DECLARE
    began float8 := cpu();
    row record;
BEGIN
    FOR i IN 1..n LOOP
        FOR row IN SELECT v FROM a WHERE k = i % 1000 LOOP END LOOP;
    END LOOP;
    RETURN (cpu() - began) / n;
END \$\$;
DO 'BEGIN PERFORM look_up(10000); END';
$(for _ in $(seq "$rounds"); do
    for publish in on off; do
        echo "SET thermocline.publish = $publish;"
        echo "INSERT INTO times SELECT '$publish', look_up($statements);"
    done
done)
SELECT format('%s: %s ns a statement in the fastest tenth of the rounds, %s in half of them',
    CASE WHEN publish THEN 'published' ELSE 'not' END,
    round((percentile_cont(0.1) WITHIN GROUP (ORDER BY ns))::numeric),
    round((percentile_cont(0.5) WITHIN GROUP (ORDER BY ns))::numeric))
FROM times GROUP BY publish;
SQL

