#!/usr/bin/env bash
# The star schema of the TAC paper (T, section 5.1): a fact table of 24 columns with eight indexes,
# twelve queries in streams of 1, 4 and 8, memory for 4 % of the database, flash for 0 to 30 %. Each
# number of streams is recorded once, then simulated; the figures behind evaluation/results/erp.md.
#
#   evaluation/workloads/erp.sh [OUT]
#
# Needs what tpch.sh needs. Parameters here and in lib.sh, each to be overridden by the environment.
#
# T gives sizes and numbers, no schema and no statements. Here they are ours: the queries look at the
# newest quarter of the facts, which with indexes is about T's working set of 30 %; two of them
# read all of that quarter, ten a few of its documents, by two or three dimensions.
set -euo pipefail

: "${ROWS:=100000}"       # T: 16 million
: "${MEMORY:=4}"          # shared_buffers in per cent of the database
: "${STREAMS:=1 4 8}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(realpath -m "${1:-$here/../../target/erp}")
mkdir -p "$out"
# shellcheck source=lib.sh
source "$here/lib.sh"

fill() {
    local measures=() m
    for m in {1..16}; do measures+=("random() * 1000 AS m$m"); done
    sql << SQL
SELECT setseed(0.5);
CREATE TABLE day AS SELECT d AS id, d / 30 AS month, d / 365 AS year FROM generate_series(0, 999) d;
CREATE TABLE customer AS SELECT c AS id, 'customer ' || c AS name, c % 25 AS country FROM generate_series(0, $ROWS / 200) c;
CREATE TABLE product AS SELECT p AS id, 'product ' || p AS name, p % 40 AS category FROM generate_series(0, $ROWS / 400) p;
CREATE TABLE plant AS SELECT p AS id, 'plant ' || p AS name, p % 8 AS region FROM generate_series(0, 99) p;
CREATE TABLE account AS SELECT a AS id, 'account ' || a AS name FROM generate_series(0, 499) a;
CREATE TABLE org AS SELECT o AS id, 'organisation ' || o AS name FROM generate_series(0, 19) o;
CREATE TABLE seller AS SELECT s AS id, 'seller ' || s AS name FROM generate_series(0, 999) s;
CREATE TABLE fact AS SELECT n AS document, (n * 1000::bigint / $ROWS)::int AS day,
    (random() * random() * ($ROWS / 200))::int AS customer, (random() * random() * ($ROWS / 400))::int AS product,
    (random() * 99)::int AS plant, (random() * 499)::int AS account, (random() * 19)::int AS org,
    (random() * 999)::int AS seller, $(IFS=,; echo "${measures[*]}")
    FROM generate_series(1, $ROWS) n;
CREATE INDEX f_day ON fact (day);
CREATE INDEX f_customer ON fact (customer);
CREATE INDEX f_product ON fact (product);
CREATE INDEX f_plant ON fact (plant);
CREATE INDEX f_account ON fact (account);
CREATE INDEX f_org ON fact (org);
CREATE INDEX f_seller ON fact (seller);
CREATE UNIQUE INDEX f_all ON fact (day, customer, product, plant, account, org, seller, document);
ALTER TABLE customer ADD PRIMARY KEY (id);
ALTER TABLE product ADD PRIMARY KEY (id);
SQL
}

# The twelve in an order of its own for each stream.
stream() { # number
    python3 - "$1" << 'PY'
import random, sys
recent = "f.day between 750 and 999"
small = "select {name}, sum(m1), avg(m2), sum(m3 * m4), count(*) from fact f {join} where f.day between {a} and {b} and {where} group by {name}"
queries = [
    f"select p.category, sum(m1), sum(m5), avg(m6) from fact f join product p on f.product = p.id where {recent} group by p.category",
    f"select c.country, d.month, sum(m2), sum(m7) from fact f join customer c on f.customer = c.id join day d on f.day = d.id where {recent} group by c.country, d.month",
]
joins = {
    "c.name": "join customer c on f.customer = c.id", "p.name": "join product p on f.product = p.id",
    "l.name": "join plant l on f.plant = l.id", "s.name": "join seller s on f.seller = s.id",
}
wheres = [
    "f.product between 100 and 130 and f.plant < 30", "f.customer between 200 and 260", "f.seller between 10 and 14",
    "f.account between 40 and 42", "f.product between 10 and 20 and f.org < 10", "f.customer between 1000 and 1100 and f.org < 5",
    "f.plant = 7 and f.account < 250", "f.seller = 500 and f.plant < 50", "f.product between 1000 and 1100", "f.account = 77 and f.plant > 20",
]
for n, where in enumerate(wheres):
    name = list(joins)[n % 4]
    begin, length = 750 + 15 * n, (250 if n % 3 == 0 else 110)
    queries.append(small.format(name=name, join=joins[name], a=begin, b=min(999, begin + length), where=where))
random.Random(int(sys.argv[1])).shuffle(queries)
print(";\n".join(queries) + ";")
PY
}

record() {
    server
    load "erp-$ROWS" fill
    local size from streams n running
    size=$(du -sb "$work"/base/data/base/* | sort -n | tail -1 | cut -f1)
    mount
    for streams in $STREAMS; do
        start "$work/mnt/data" "$(python3 -c "print(int($size * $MEMORY / 100 / 1024))")kB"
        names
        bytes > "$traces/bytes"
        sql -c 'SHOW server_version' > "$traces/version"
        from=$(now)
        running=()
        for n in $(seq "$streams"); do
            stream "$n" > "$work/run/stream.$n"
            sql -f "$work/run/stream.$n" > /dev/null & running+=($!)
        done
        wait "${running[@]}"
        echo "$streams streams: $((($(now) - from) / 1000000)) ms" >&2
        phase "erp-$streams" "$from"
        stop
    done
    unmount
    cut_phases
}
if [[ ! -e $traces/bytes ]]; then record; fi
"$python" "$here/erp.py" "$traces" "$out" "$thermocline" $STREAMS
