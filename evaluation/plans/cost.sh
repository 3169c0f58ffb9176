#!/usr/bin/env bash
# What publishing plans costs a statement: an index look-up of one row, run many times by a PL/pgSQL
# loop on a warm table, with thermocline.publish on and off in turn. The loop starts and ends the
# executor for each. Prints nanoseconds a statement: the medians of the rounds, and their difference.
#
#   evaluation/plans/cost.sh [PG_CONFIG [MAKE ARGUMENT...]]
#
# Needs what pg/test.sh needs. Less than a minute.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
rounds=${ROUNDS:-15} statements=${STATEMENTS:-100000}
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
CREATE FUNCTION look_up(n int) RETURNS float8 LANGUAGE plpgsql AS \$\$
DECLARE
    began timestamptz := clock_timestamp();
    row record;
BEGIN
    FOR i IN 1..n LOOP
        FOR row IN SELECT v FROM a WHERE k = i % 1000 LOOP END LOOP;
    END LOOP;
    RETURN extract(epoch FROM clock_timestamp() - began) * 1e9 / n;
END \$\$;
SELECT look_up(1000) IS NULL;
$(for _ in $(seq "$rounds"); do
    for publish in on off; do
        echo "SET thermocline.publish = $publish;"
        echo "INSERT INTO times SELECT '$publish', look_up($statements);"
    done
done)
SELECT format('%s: median %s ns a statement (%s to %s)', CASE WHEN publish THEN 'published' ELSE 'not' END,
    round((percentile_cont(0.5) WITHIN GROUP (ORDER BY ns))::numeric), round(min(ns)), round(max(ns)))
FROM times GROUP BY publish;
SELECT format('publishing costs %s ns a statement', round((
    percentile_cont(0.5) WITHIN GROUP (ORDER BY ns) FILTER (WHERE publish)
    - percentile_cont(0.5) WITHIN GROUP (ORDER BY ns) FILTER (WHERE NOT publish))::numeric)) FROM times;
SQL

