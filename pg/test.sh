#!/usr/bin/env bash
# The extension's own tests (pg_regress), on a server of its own with a copy of a PostgreSQL.
#
#   pg/test.sh [PG_CONFIG [MAKE ARGUMENT...]]
#
# Needs PostgreSQL's server headers (Debian: postgresql-server-dev-15). No mount is needed: a file
# in the data directory stands for the mount's. As root the server runs as the user postgres.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
config=${1:-$(compgen -G "/usr/lib/postgresql/*/bin/pg_config" | sort -V | tail -1)}
config=${config:-pg_config}
shift || true
work=$(mktemp -d "${TMPDIR:-/tmp}/thermocline-pg-XXXXXX")
as=()
finish() {
    if [[ -e $work/data/postmaster.pid ]]; then
        "${as[@]}" "$bin/pg_ctl" -D "$work/data" -m immediate stop > /dev/null || true
    fi
    rm -rf --one-file-system "$work"
}
bin=
trap finish EXIT
chmod 755 "$work"
bin=$("$here/private.sh" "$config" "$work/pg" "$@")
regress=$(dirname "$("$config" --pgxs)")/../test/regress/pg_regress
mkdir "$work/run"
cp -r "$here/sql" "$here/expected" "$work/run"
if ((EUID == 0)); then
    as=(runuser -u postgres --)
    chown -R postgres: "$work/run"
fi
cd "$work/run"
install -d -m 700 ${as:+-o postgres} "$work/data"
"${as[@]}" "$bin/initdb" -D "$work/data" --no-locale --encoding=UTF8 --auth=trust \
    --username=postgres > /dev/null
"${as[@]}" mkdir "$work/data/.thermocline"
"${as[@]}" tee "$work/data/.thermocline/hints" <<< "$work/run/hints" > /dev/null
"${as[@]}" "$bin/pg_ctl" -D "$work/data" -w -l "$work/run/log" start > /dev/null -o "-k $work/run \
    -c listen_addresses= -c shared_preload_libraries=thermocline -c jit=off -c autovacuum=off"
status=0
"${as[@]}" "$regress" --bindir="$bin" --host="$work/run" --user=postgres --dbname=regress \
    --inputdir="$work/run" --outputdir="$work/run" levels lifetimes || status=$?
if ((status)); then
    cat "$work/run/regression.diffs" "$work/run/log" >&2
    if [[ -n ${KEEP_RESULTS-} ]]; then cp "$work/run/results"/* "$KEEP_RESULTS"; fi
fi
exit "$status"
