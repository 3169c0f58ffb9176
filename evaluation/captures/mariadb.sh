# MariaDB for capture.sh: InnoDB as it comes, except that a commit does not wait for the log.
page_size=16KiB
smallest=6144 # KiB: the least it starts with, of 16-KiB pages
queries=$(printf 'q%d,' {1..22})
queries=${queries%,}

create() { # data directory
    "${as[@]}" mariadb-install-db --no-defaults --auth-root-authentication-method=normal \
        --skip-test-db --datadir="$1" > "$work/install.log"
}
start() { # data directory, buffer in KiB
    local settings=(--no-defaults --datadir="$1" --socket="$work/run/socket" --port="$port"
        --bind-address=127.0.0.1 --skip-name-resolve --pid-file="$work/run/pid"
        --innodb-buffer-pool-size="${2}K" --innodb-buffer-pool-chunk-size=1M
        --innodb-buffer-pool-load-at-startup=OFF --innodb-buffer-pool-dump-at-shutdown=OFF
        --innodb-flush-log-at-trx-commit=2
        --local-infile=ON)
    # Pages written twice are no request of the database for pages.
    ((percent > 0)) || settings+=(--innodb-doublewrite=OFF)
    "${as[@]}" mariadbd "${settings[@]}" > "$work/run/log" 2>&1 &
    server=$!
    serving=yes
    for _ in {1..600}; do
        if sql mysql -e 'SELECT 1' > /dev/null 2>&1; then return; fi
        if ! kill -0 "$server" 2> /dev/null; then break; fi
        sleep 0.1
    done
    cat "$work/run/log" >&2
    return 1
}
prepare() {
    sql mysql -e "CREATE DATABASE test; CREATE USER capture@127.0.0.1;
        GRANT ALL ON *.* TO capture@127.0.0.1"
}
stop() {
    sql mysql -e SHUTDOWN || kill "$server"
    wait "$server" || true
    serving=no
}
sql() { # database and options; statements on standard input, in database test, without any
    if (($# == 0)); then set -- test; fi
    mariadb --no-defaults --socket="$work/run/socket" -u root --batch --skip-column-names "$@"
}
load_table() { # table, file
    sql test --local-infile -e "LOAD DATA LOCAL INFILE '$2' INTO TABLE $1
        FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' IGNORE 1 LINES"
}
analyze() {
    local table
    for table in $(sql test -e "SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'" | cut -f1); do
        sql test -e "ANALYZE TABLE $table" > /dev/null
    done
}
bytes() { find "$work/base/data/test" -name '*.ibd' -printf '%s\n' | awk '{ sum += $1 } END { print sum }'; }
names() { (cd "$work/base" && find data -name '*.ibd' -printf '%p,%f\n' | sed 's/\.ibd$//'); }
server_version() { sql mysql -e 'SELECT version()'; }
