"""PostgreSQL and MariaDB as the rounds need them: start, clients, load, what must hold."""
import glob
import os
import signal
import socket
import subprocess
import time

from disks import Failure, gone, kill_all, run, stop_all

ACCOUNTS = 20000
# The consistency conditions 1 to 4, 8, 9 and 10 (summed over customers) of TPC-C 3.3.2, each as a
# count of what breaks it. (`go-tpc tpcc check` asks 10 customer by customer, which takes hours.)
TPCC = [
    """SELECT COUNT(*) FROM warehouse WHERE w_ytd <> (SELECT SUM(d_ytd) FROM district
       WHERE d_w_id = w_id)""",
    """SELECT COUNT(*) FROM district WHERE d_next_o_id - 1 <> (SELECT MAX(o_id) FROM orders
       WHERE o_w_id = d_w_id AND o_d_id = d_id)""",
    """SELECT COUNT(*) FROM (SELECT MAX(no_o_id) - MIN(no_o_id) + 1 - COUNT(*) AS x FROM new_order
       GROUP BY no_w_id, no_d_id) t WHERE x <> 0""",
    """SELECT COUNT(*) FROM (SELECT o_d_id d, SUM(o_ol_cnt) a FROM orders GROUP BY o_d_id) o
       JOIN (SELECT ol_d_id d, COUNT(*) b FROM order_line GROUP BY ol_d_id) l USING (d)
       WHERE a <> b""",
    """SELECT COUNT(*) FROM warehouse WHERE w_ytd <> (SELECT SUM(h_amount) FROM history)""",
    """SELECT COUNT(*) FROM district JOIN (SELECT h_d_id, SUM(h_amount) a FROM history
       GROUP BY h_d_id) h ON h_d_id = d_id WHERE d_ytd <> a""",
    """SELECT (SELECT SUM(c_balance) FROM customer) <> (SELECT SUM(ol_amount) FROM order_line
       WHERE ol_delivery_d IS NOT NULL) - (SELECT SUM(h_amount) FROM history)""",
]


class Gone(Exception):
    """The client's session is over; what it asked for last may have been done or not."""


class Client:
    """A session that is told one thing after the other, and says when each is done."""

    def __init__(self, command, log, **user):
        self.log = log
        with open(log, "wb") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, **user)
        self.count = 0

    def ask(self, sql):
        self.count += 1
        mark = f"done-{self.count}"
        try:
            self.process.stdin.write(f"{sql};\nSELECT '{mark}';\n".encode())
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError) as end:
            raise Gone from end
        lines = []
        for line in self.process.stdout:
            text = line.decode().rstrip("\n")
            if text == mark:
                return lines
            lines.append(text)
        raise Gone

    def error(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()[-1000:]

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Database:
    """A server on one data directory."""

    def __init__(self, work, rng):
        self.run, self.rng = f"{work}/run", rng
        os.makedirs(self.run, exist_ok=True)
        run("chown", self.user, self.run)
        self.server, self.loading, self.number = None, None, 0
        self.as_user = {"user": self.user, "group": self.user, "extra_groups": []}

    def one(self, sql, *database):
        """The answer to one question."""
        return run(*self.session(*database), timeout=900, input=sql + ";\n",
                   **self.as_user).stdout.split("\n")[:-1]

    def client(self):
        self.number += 1
        log = f"{self.run}/client-{self.number}"
        return Client(self.session(), log, **self.as_user)

    def launch(self, data, options=()):
        with open(f"{self.run}/server", "ab") as log:
            self.server = subprocess.Popen(
                self.command(data) + list(options), stdout=log, stderr=log, cwd="/", **self.as_user)

    def answers(self, seconds=400):
        until = time.monotonic() + seconds
        while True:
            done = subprocess.run(self.session(), input="SELECT 1;\n", capture_output=True,
                                  text=True, timeout=seconds, **self.as_user)
            if done.returncode == 0:
                return
            if self.server.poll() is not None:
                raise Failure(f"the server ends at its start: {self.log_end()}")
            if time.monotonic() > until:
                raise Failure(f"the server does not answer in {seconds} s: {self.log_end()}")
            time.sleep(0.1)

    def log_end(self):
        with open(f"{self.run}/server", encoding="utf-8", errors="replace") as file:
            return file.read()[-1500:]

    def freeze(self):
        """Server and load do nothing more."""
        for process in (self.loading, self.server):
            if process is not None:
                stop_all(process.pid)

    def kill(self):
        """Ends server and load as a crash does."""
        pids = []
        for process in (self.loading, self.server):
            if process is not None:
                pids += kill_all(process.pid)
        for process in (self.loading, self.server):
            if process is not None:
                process.wait()
        self.loading = self.server = None
        return pids

    def stop(self):
        self.server.send_signal(self.stop_signal)
        try:
            self.server.wait(600)
        except subprocess.TimeoutExpired as late:
            raise Failure(f"the server does not stop: {self.log_end()}") from late
        self.server = None

    def start_load(self):
        with open(f"{self.run}/load", "wb") as log:
            self.loading = subprocess.Popen(self.load(), stdout=log, stderr=log, **self.as_user)

    def stop_load(self):
        if self.loading is not None:
            gone(kill_all(self.loading.pid)[1:])
            self.loading.wait()
            self.loading = None

    def own(self, words):
        """Whether a failure of power on a plain directory can end in this error."""
        return any(each in words for each in self.own_errors)

    def content(self):
        """Tables of the changing kind and how many rows each has, which it checks."""
        names = [n for n in self.tables() if n]
        found = {}
        for name in names:
            count, total, wrong = self.one(self.summary(name))[0].replace("\t", "|").split("|")
            count = int(count)
            if int(wrong) or int(float(total)) != count * (count + 1) // 2:
                raise Failure(f"table {name}: {count} rows, sum {total}, {wrong} wrong")
            found[name] = count
        return found


class Postgres(Database):
    user, page, stop_signal = "postgres", "8KiB", signal.SIGINT
    trusts_errors = True  # PANIC, so it may see a disk that has failed
    own_errors = []
    disk_options = ""
    bin = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
    minimal = False

    def choose(self, rng):
        self.minimal = rng.random() < 0.5
        return "minimal" if self.minimal else "replica"

    def session(self, database="postgres"):
        return ["psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-h", self.run, "-U",
                "postgres", "-d", database]

    def command(self, data):
        level = "minimal" if self.minimal else "replica"
        options = {"listen_addresses": "", "shared_buffers": "8MB", "max_wal_size": "64MB",
                   "min_wal_size": "32MB", "checkpoint_timeout": "30s", "wal_level": level,
                   "max_wal_senders": "0", "autovacuum_naptime": "5s", "fsync": "on",
                   "wal_skip_threshold": "64kB"}
        command = [f"{self.bin}/postgres", "-D", data, "-k", self.run]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        return command

    def make(self, data):
        run(f"{self.bin}/initdb", "-k", "--no-sync", "--auth=trust", "-U", "postgres", "-D", data,
            timeout=600, **self.as_user)
        self.launch(data, ["-c", "fsync=off"])
        self.answers()
        self.one(f"""CREATE EXTENSION amcheck;
            CREATE TABLE ledger (id bigint PRIMARY KEY, account int);
            CREATE TABLE account (id int PRIMARY KEY, balance bigint, filler char(84));
            INSERT INTO account SELECT i, 0, '' FROM generate_series(1, {ACCOUNTS}) i""")
        run(f"{self.bin}/pgbench", "-h", self.run, "-i", "-q", "-s", "2", "postgres", timeout=900,
            **self.as_user)
        self.stop()

    def load(self):
        return [f"{self.bin}/pgbench", "-n", "-h", self.run, "-U", "postgres", "-c", "2", "-T",
                "100000", "postgres"]

    def load_error(self):
        """What the load said if it ended by itself."""
        if self.loading.poll() is None:
            return None
        with open(f"{self.run}/load", encoding="utf-8") as file:
            return file.read()[-800:]

    def tables(self):
        return self.one(r"SELECT relname FROM pg_class WHERE relname ~ '^d[0-9]+_[0-9]+$' "
                        "UNION ALL SELECT datname FROM pg_database WHERE datname ~ '^d'")

    def summary(self, name):
        if name.startswith("db"):
            return "SELECT '0|0|0'"
        return ("SELECT count(*), coalesce(sum(id), 0), count(*) FILTER "
                f"(WHERE v <> repeat(md5(id::text), 8)) FROM {name}")

    def fill(self, name, first, last):
        return (f"INSERT INTO {name} SELECT g, repeat(md5(g::text), 8) "
                f"FROM generate_series({first}, {last}) g")

    def change(self, rng, name, rows, free):
        """A statement on a changing table, and what it makes of which tables."""
        new = rng.randint(1, 3000)
        if name.startswith("db"):
            if rows is None:
                return f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY FILE_COPY", {name: 0}
            return f"DROP DATABASE {name}", {name: None}
        if rows is None:
            return (f"BEGIN; CREATE TABLE {name} (id int, v text); {self.fill(name, 1, new)}; "
                    f"CREATE INDEX {name}_i ON {name} (id); COMMIT", {name: new})
        same, half = {name: rows}, rows // 2
        return rng.choice([
            (f"DROP TABLE {name}", {name: None}),
            (f"TRUNCATE {name}", {name: 0}),
            (f"BEGIN; TRUNCATE {name}; {self.fill(name, 1, new)}; COMMIT", {name: new}),
            (self.fill(name, rows + 1, rows + new), {name: rows + new}),
            (f"DELETE FROM {name} WHERE id > {half}", {name: half}),
            (f"DELETE FROM {name} WHERE id > {half}", {name: half}),
            (f"UPDATE {name} SET v = v || ''", same),
            (f"VACUUM {name}", same), (f"VACUUM {name}", same),
            (f"VACUUM FULL {name}", same), (f"VACUUM FREEZE {name}", same),
            (f"REINDEX TABLE {name}", same), (f"CLUSTER {name} USING {name}_i", same),
            (f"CREATE INDEX IF NOT EXISTS {name}_v ON {name} (v)", same),
            (f"DROP INDEX IF EXISTS {name}_v", same), ("CHECKPOINT", same),
        ])

    def quick_check(self):
        sums = self.one("""SELECT count(DISTINCT sum) FROM (
            SELECT sum(abalance) FROM pgbench_accounts UNION ALL SELECT sum(bbalance) FROM
            pgbench_branches UNION ALL SELECT sum(tbalance) FROM pgbench_tellers UNION ALL
            SELECT coalesce(sum(delta), 0) FROM pgbench_history) s""")
        if sums != ["1"]:
            raise Failure("pgbench: the four sums differ")
        self.one(r"""SELECT bt_index_check(i.indexrelid, true) FROM pg_index i JOIN pg_class c
            ON c.oid = i.indrelid WHERE c.relname ~ '^d[0-9]+_[0-9]+$' AND i.indisvalid""")

    def full_check(self, data):
        run(f"{self.bin}/pg_amcheck", "-h", self.run, "-U", "postgres", "--all",
            "--install-missing", "--heapallindexed", timeout=1200, **self.as_user)
        self.stop()
        self.base_check(data)
        self.launch(data)
        self.answers()

    def base_check(self, data):
        run(f"{self.bin}/pg_checksums", "--check", "-D", data, timeout=900, **self.as_user)


class MariaDB(Database):
    user, page, stop_signal = "mysql", "16KiB", signal.SIGTERM
    trusts_errors = False  # loses commits on a plain directory that answers EIO
    # Renames of ALTER TABLE are never synced, and are lost with power on a plain directory too.
    disk_options = "dirsync,"
    # A crash in DROP TABLE leaves its .frm; an .ibd that was to go stands in the way of a rename.
    own_errors = ["doesn't exist in engine", "Tablespace already exists", "Tablespace for table"]
    aio = "ON"

    def __init__(self, work, rng):
        super().__init__(work, rng)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def choose(self, rng):
        # Only with O_DIRECT does a plain directory keep new tables when power fails.
        self.aio = rng.choice(["ON", "OFF"])
        if os.environ.get("STRACE"):
            self.aio = "OFF"  # strace does not see the others
        return f"aio {self.aio}"

    def traced(self):
        """With STRACE=DIR the server's writes and syncs go to a log of each start there."""
        logs = os.environ.get("STRACE")
        calls = "trace=fsync,fdatasync,pwrite64,rename,unlink"
        return [] if not logs else ["strace", "-D", "-f", "-qq", "-ttt", "-y", "-s", "0",
                                    "--seccomp-bpf", "-e", calls, "-o", f"{logs}/{time.time():.2f}"]

    def session(self, database="l"):
        return ["mariadb", "--no-defaults", f"--socket={self.run}/s", "-u", "root", "--batch",
                "--skip-column-names", "--unbuffered", database]

    def command(self, data):
        return self.traced() + ["/usr/sbin/mariadbd", "--no-defaults", f"--datadir={data}",
                f"--socket={self.run}/s", f"--pid-file={self.run}/pid",
                "--bind-address=127.0.0.1", f"--port={self.port}", "--skip-name-resolve",
                "--innodb-buffer-pool-size=8M", "--innodb-flush-method=O_DIRECT",
                f"--innodb-use-native-aio={self.aio}",
                "--innodb-log-file-size=16M", "--innodb-buffer-pool-load-at-startup=OFF",
                "--innodb-flush-log-at-trx-commit=1"]

    def make(self, data):
        run("mkdir", "-p", f"{data}/l", f"{data}/test", **self.as_user)
        run("mariadb-install-db", "--no-defaults", "--skip-test-db", f"--datadir={data}",
            "--auth-root-authentication-method=normal", timeout=600, **self.as_user)
        self.launch(data, ["--innodb-flush-log-at-trx-commit=0"])
        self.answers()
        self.one(f"""CREATE TABLE ledger (id BIGINT PRIMARY KEY, account INT);
            CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT, filler CHAR(84));
            INSERT INTO account SELECT seq, 0, '' FROM seq_1_to_{ACCOUNTS};
            CREATE USER tpc@127.0.0.1; GRANT ALL ON test.* TO tpc@127.0.0.1""")
        run(*self.tpcc("prepare"), "-T", "2", "--no-check", timeout=1800)
        self.stop()

    def tpcc(self, command):
        return [os.environ["GO_TPC"], "tpcc", command, "-d", "mysql", "-U", "tpc", "-D", "test",
                "-H", "127.0.0.1", "-P", str(self.port), "--warehouses", "1"]

    def load(self):
        return self.tpcc("run") + ["-T", "2", "--time", "100000s", "--ignore-error",
                                   "--interval", "3600s"]

    def load_error(self):
        if self.loading.poll() is None:
            return None
        with open(f"{self.run}/load", encoding="utf-8") as file:
            return file.read()[-800:]

    def tables(self):
        return self.one("SELECT table_name FROM information_schema.tables "
                        "WHERE table_schema = 'l' AND table_name REGEXP '^d[0-9]+_[0-9]+$'")

    def summary(self, name):
        return ("SELECT COUNT(*), COALESCE(SUM(id), 0), "
                f"COALESCE(SUM(BINARY v <> BINARY REPEAT(MD5(id), 8)), 0) FROM {name}")

    def fill(self, name, first, last):
        return (f"INSERT INTO {name} (id, v) SELECT seq, REPEAT(MD5(seq), 8) "
                f"FROM seq_{first}_to_{last}")

    def change(self, rng, name, rows, free):
        new = rng.randint(1, 2000)
        if rows is None:
            return (f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(300)) ENGINE=InnoDB",
                    {name: 0})
        same, half = {name: rows}, rows // 2
        choices = [
            (f"DROP TABLE {name}", {name: None}),
            (f"TRUNCATE TABLE {name}", {name: 0}),
            (self.fill(name, rows + 1, rows + new), {name: rows + new}),
            (self.fill(name, rows + 1, rows + new), {name: rows + new}),
            (self.fill(name, rows + 1, rows + new), {name: rows + new}),
            (f"DELETE FROM {name} WHERE id > {half}", {name: half}),
            (f"ALTER TABLE {name} ENGINE=InnoDB", same),
            (f"ALTER TABLE {name} FORCE, ALGORITHM=COPY", same),
            (f"OPTIMIZE TABLE {name}", same),
            (f"ALTER TABLE {name} ADD INDEX IF NOT EXISTS k (v(40))", same),
            (f"ALTER TABLE {name} DROP INDEX IF EXISTS k", same),
            (f"ALTER TABLE {name} ADD COLUMN IF NOT EXISTS c INT DEFAULT 7", same),
            (f"ALTER TABLE {name} DROP COLUMN IF EXISTS c", same),
        ]
        if free:
            other = rng.choice(free)
            choices.append((f"RENAME TABLE {name} TO {other}", {name: None, other: rows}))
        return rng.choice(choices)

    def quick_check(self):
        names = ", ".join(["ledger", "account"] + self.tables())
        self.checked(f"CHECK TABLE {names}")

    def checked(self, sql):
        bad = [line for line in self.one(sql) if not line.endswith("\tOK")]
        if bad:
            raise Failure(f"{sql}: {bad}")

    def full_check(self, data):
        names = self.one("SELECT CONCAT(table_schema, '.', table_name) FROM "
                         "information_schema.tables WHERE table_schema IN ('l', 'test')")
        self.checked(f"CHECK TABLE {', '.join(names)} EXTENDED")
        for rule in TPCC:
            if self.one(rule, "test") != ["0"]:
                raise Failure(f"TPC-C: does not hold: {rule}")
        self.stop()
        self.base_check(data)
        self.launch(data)
        self.answers()

    def base_check(self, data):
        for file in glob.glob(f"{data}/*/*.ibd"):
            run("innochecksum", file)
