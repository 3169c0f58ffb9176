#!/usr/bin/env bash
# PostgreSQL on a mount whose pages are all on flash, beside the same PostgreSQL on plain directories
# of the same disk: pgbench (-S, and its mixed transactions), and TPC-H's queries 1 and 6.
#
#   evaluation/path/postgres.sh [RESULT.md]
#
# The rivals take turns, ROUNDS times; each figure is a median, with the range of the turns' ratios.
#   plain, direct   debug_io_direct=data: past the page cache, as a mount reads and writes
#   plain, cached   through the page cache, which holds the whole database here
#   mount, through  a mount, base and cache on the same disk, after every page was read once
#   mount, back     the same with --write-back
# `lineitem` has TPC-H's columns with made-up values (generate_series), no dbgen.
#
# Needs root, FUSE, pgbench, target/release/thermocline (or THERMOCLINE=program), and PostgreSQL 16
# or later (PGBIN=directory of its programs), which alone has debug_io_direct. TRANSPORT=device or
# auto; with auto run it under scripts/with-ring.sh to have io_uring.
set -euo pipefail

: "${ROUNDS:=5}"
: "${SECONDS_MEASURED:=8}"
: "${SCALE:=30}"             # 100,000 rows each, about 15 MB
: "${LINES:=3000000}"        # of lineitem, about 130 bytes each
: "${SHARED_BUFFERS:=64MB}"
: "${TRANSPORT:=auto}"
: "${DIRECTORY:=${TMPDIR:-/tmp}}"
: "${PGBIN:=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=$(realpath "${THERMOCLINE:-$here/../../target/release/thermocline}")
result=$(realpath -m "${1:-$here/../results/path-postgres.md}")
pgbench=$(type -P pgbench || ls -d /usr/lib/postgresql/*/bin/pgbench | sort -V | tail -1)
psql=$(type -P psql || ls -d /usr/lib/postgresql/*/bin/psql | sort -V | tail -1)
work=$(mktemp -d "$DIRECTORY/thermocline-path-XXXXXX")
chmod 755 "$work"
mounted=()
serving=
finish() {
    stop || true
    for mnt in "${mounted[@]}"; do "$thermocline" umount "$mnt" > /dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT
as() { runuser -u postgres -- "$@"; }
names=(direct cached through back)

start() { # name
    local data=$work/$1/mnt/data io=data
    if [[ $1 == cached || $1 == through || $1 == back ]]; then io=; fi
    as "$PGBIN/pg_ctl" -D "$data" -w -t 120 -l "$work/socket/log" -o "-k $work/socket \
        -c listen_addresses= -c shared_buffers=$SHARED_BUFFERS -c debug_io_direct=$io \
        -c autovacuum=off -c checkpoint_timeout=1h -c max_wal_size=8GB -c jit=off \
        -c max_parallel_workers_per_gather=0" start > /dev/null
    serving=$data
}
stop() {
    if [[ -n $serving ]]; then as "$PGBIN/pg_ctl" -D "$serving" -w -m fast stop > /dev/null; fi
    serving=
}
sql() { as "$psql" -h "$work/socket" -d postgres -qAtX "$@"; }
mount_() { # name, options
    "$thermocline" mount "$work/$1/base" "$work/$1/mnt" --cache "$work/$1/cache" --size 4G \
        --page-size 8KiB --transport "$TRANSPORT" --log "$work/$1/log" "${@:2}" > /dev/null
    mounted+=("$work/$1/mnt")
}

mkdir -p "$work/socket" "$work"/{direct,cached,through,back}/{base,mnt}
chown postgres "$work/socket" "$work"/*/base "$work"/*/mnt
as "$PGBIN/initdb" -D "$work/direct/mnt/data" -U postgres --no-sync > /dev/null
start direct
as "$pgbench" -h "$work/socket" -U postgres -d postgres -i -q -s "$SCALE" > /dev/null 2>&1
sql -v ON_ERROR_STOP=1 -U postgres > /dev/null << END
create table lineitem as select g as l_orderkey, g % 200000 as l_partkey, g % 10000 as l_suppkey,
  g % 7 as l_linenumber, (g % 50 + 1)::numeric(15,2) as l_quantity,
  ((g::bigint * 7919) % 90000 + 1000)::numeric(15,2) as l_extendedprice,
  ((g % 11) / 100.0)::numeric(15,2) as l_discount, ((g % 9) / 100.0)::numeric(15,2) as l_tax,
  (array['A','N','R'])[g % 3 + 1]::char(1) as l_returnflag,
  (array['F','O'])[g % 2 + 1]::char(1) as l_linestatus,
  date '1992-01-01' + (g % 2500)::int as l_shipdate, date '1992-02-01' + (g % 2500)::int as
  l_commitdate, date '1992-03-01' + (g % 2500)::int as l_receiptdate, 'DELIVER IN PERSON'::char(25)
  as l_shipinstruct, 'TRUCK'::char(10) as l_shipmode, 'made up, not by dbgen'::varchar(44) as
  l_comment from generate_series(1, $LINES) g;
vacuum analyze;
checkpoint;
END
stop
for name in cached through back; do
    where=$work/$name/base
    if [[ $name == cached ]]; then where=$work/$name/mnt; fi
    cp -a "$work/direct/mnt/data" "$where/data"
done
sync
mount_ through
mount_ back --write-back
for name in through back; do
    for _ in 1 2 3; do # what is read ahead may come faster than it is written to flash
        find "$work/$name/mnt/data/base" -type f -size +0 -exec \
            dd if={} of=/dev/null bs=8k iflag=direct status=none \;
        sleep 2
    done
done

cat > "$work/q1" << 'END'
select l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), sum(l_extendedprice * (1 -
l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity),
avg(l_extendedprice), avg(l_discount), count(*) from lineitem where l_shipdate <= date '1998-09-02'
group by 1, 2 order by 1, 2;
END
cat > "$work/q6" << 'END'
select sum(l_extendedprice * l_discount) from lineitem where l_shipdate >= date '1994-01-01' and
l_shipdate < date '1995-01-01' and l_discount between 0.05 and 0.07 and l_quantity < 24;
END
tps() { # options
    as "$pgbench" -h "$work/socket" -U postgres -d postgres -n -M prepared -T "$SECONDS_MEASURED" "$@" 2>&1 |
        sed -n 's/^tps = \([0-9.]*\).*/\1/p'
}
took() { # query
    local before=$EPOCHREALTIME
    sql -v ON_ERROR_STOP=1 -U postgres -f "$work/$1" > /dev/null
    echo "$EPOCHREALTIME $before" | awk '{ print $1 - $2 }'
}
for ((round = 0; round < ROUNDS; round++)); do
    for name in "${names[@]}"; do
        start "$name"
        {
            echo "read1 $(tps -S -c 1 -j 1)"
            echo "read8 $(tps -S -c 8 -j 2)"
            echo "q1 $(took q1)"
            echo "q6 $(took q6)"
            echo "mixed1 $(tps -c 1 -j 1)"
            echo "mixed8 $(tps -c 8 -j 2)"
        } | sed "s/^/$name $round /" >> "$work/figures"
        stop
    done
done
transport="through /dev/fuse"
if grep -q "over io_uring" "$work/through/log"; then transport="over io_uring"; fi
version=$("$PGBIN/postgres" --version)
python3 - "$work/figures" "$transport" "$version" "$SCALE" "$SHARED_BUFFERS" << 'END' > "$work/table"
import statistics, sys, datetime
path, transport, version, scale, buffers = sys.argv[1:]
figures = {}
for line in open(path):
    name, turn, what, value = line.split()
    figures.setdefault(what, {}).setdefault(name, []).append(float(value))
rows = {'read1': ('`pgbench -S`, 1 client', 'tps', 1), 'read8': ('`pgbench -S`, 8 clients', 'tps', 1),
        'mixed1': ('`pgbench`, 1 client', 'tps', 1), 'mixed8': ('`pgbench`, 8 clients', 'tps', 1),
        'q1': ('TPC-H Q1', 's', -1), 'q6': ('TPC-H Q6', 's', -1)}
turns = len(figures['q1']['direct'])
print(f'\n## {transport}\n\n{datetime.date.today()}, {version}, requests {transport}, {turns} turns, scale {scale}, '
      f'shared_buffers {buffers}.\nRatios are to *plain, direct* of the same turn (above 1: the mount is faster).\n')
print('| | plain, direct | plain, cached | mount, through | ratio | range | mount, back | ratio | range |')
print('|---|---:|---:|---:|---:|---|---:|---:|---|')
for what, (label, unit, sign) in rows.items():
    by = figures[what]
    show = lambda name: f'{statistics.median(by[name]):,.0f}' if sign > 0 else f'{statistics.median(by[name]):.2f} s'
    def ratios(name):
        each = [(mine / plain) ** sign for mine, plain in zip(by[name], by['direct'])]
        return f'{statistics.median(each):.2f} | {min(each):.2f}-{max(each):.2f}'
    unit = ' tps' if sign > 0 else ''
    print(f'| {label} | {show("direct")}{unit} | {show("cached")}{unit} | {show("through")}{unit} | {ratios("through")} | '
          f'{show("back")}{unit} | {ratios("back")} |')
END
if [[ ! -s $result ]]; then
    printf '# PostgreSQL end to end, all pages on flash\n\n`evaluation/path/postgres.sh` says what the columns are. Base, cache and plain directories are on\none disk of a virtual machine with 2 cores, whose host caches.\n' > "$result"
fi
cat "$work/table" >> "$result"
cat "$work/table"
