"""Rounds of work, crash, restart, comparison; called by power.sh, which says what for."""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from databases import ACCOUNTS, Gone, MariaDB, Postgres
from disks import Busy, Disk, Failure, ServersOwn, VolatileDisk, gone, run, send

POLICIES = ["tac", "lru", "lc", "cac", "arc", "clic", "cc", "dp-clic", "2q", "mv-fifo", "lru2",
            "tac-blocks", "s3-fifo", "clean-write", "dual-write"]
POOLS = ["0", "8M", "32M"]
WRITERS, CHANGERS, TABLES = 2, 2, 6


class Ledger:
    """What clients were told is durable, kept where no crash reaches it."""

    def __init__(self):
        self.said, self.asked = set(), set()
        self.tables, self.pending, self.history = {}, {}, []

    def dump(self, path):
        with open(path, "w", encoding="ascii") as file:
            json.dump({"said": sorted(self.said), "unsure": sorted(self.asked - self.said),
                       "tables": self.tables, "pending": self.pending,
                       "history": self.history[-400:]}, file)


class Work:
    """The sessions of a round; each ends when its client does."""

    def __init__(self, database, ledger, number, rng):
        self.database, self.ledger, self.ending = database, ledger, False
        self.commits = self.changes = 0
        self.faults, self.clients, self.threads = [], [], []
        for w in range(WRITERS):
            self.begin(self.write, number * 64 + w)
        for c in range(CHANGERS):
            self.begin(self.change, c, random.Random(rng.random()))
        database.start_load()

    def begin(self, what, *arguments):
        client = self.database.client()
        thread = threading.Thread(target=self.guard, args=(what, client, *arguments), daemon=True)
        self.clients.append(client)
        self.threads.append(thread)
        thread.start()

    def guard(self, what, client, *arguments):
        try:
            what(client, *arguments)
        except Gone:
            if not self.ending:
                client.process.wait()
                self.faults.append(f"a session ended before the crash: {client.error()}")

    def write(self, client, number):
        for t in range(10**7):
            if self.ending:
                return
            i = number * 10**7 + t
            a = 1 + i * 2654435761 % ACCOUNTS
            self.ledger.asked.add(i)
            client.ask(f"BEGIN; UPDATE account SET balance = balance + 1 WHERE id = {a}; "
                       f"INSERT INTO ledger VALUES ({i}, {a}); COMMIT")
            self.ledger.said.add(i)
            self.commits += 1

    def change(self, client, number, rng):
        names = [f"d{number}_{t}" for t in range(TABLES)]
        tables, pending = self.ledger.tables, self.ledger.pending
        while not self.ending:
            name = rng.choice(names)
            if number == 0 and isinstance(self.database, Postgres) and rng.random() < 0.03:
                name = "db"
            free = [other for other in names if tables.get(other) is None and other != name]
            sql, after = self.database.change(rng, name, tables.get(name), free)
            pending[number] = {"sql": sql, "after": after}
            begun = time.time()
            client.ask(sql)
            self.ledger.history.append((begun, time.time(), sql, after))
            tables.update(after)
            del pending[number]
            self.changes += 1

    def end(self):
        for client in self.clients:
            client.end()
        for thread in self.threads:
            thread.join(120)


class Rounds:
    """One campaign: a base, a cache, a mount, a database."""

    def __init__(self, options):
        self.options, self.work = options, options.work
        self.mnt, self.log = f"{self.work}/mnt", f"{self.work}/mount.log"
        os.makedirs(self.mnt, exist_ok=True)
        kind = Postgres if options.database == "postgres" else MariaDB
        disk = VolatileDisk if options.volatile else Disk
        self.base = disk(self.work, "base", "700M", "" if options.lazy else kind.disk_options)
        self.flash = disk(self.work, "flash", "60M", "")
        self.database = kind(self.work, random.Random(options.seed))
        self.ledger, self.session, self.serving = Ledger(), None, None
        self.base_failed = False
        self.policy, self.pool, self.extra, self.started = "lru", "8M", "", {}

    # --- the mount -----------------------------------------------------------------------------

    def data(self):
        return f"{self.base.dir}/b/data" if self.options.plain else f"{self.mnt}/data"

    def mount(self):
        begun = time.monotonic()
        if not self.options.plain:
            run(self.options.thermocline, "mount", f"{self.base.dir}/b", self.mnt, "--cache",
                f"{self.flash.dir}/cache", "--size", self.options.size, "--write-back",
                "--policy", self.policy, "--pool", self.pool, "--page-size",
                self.database.page, "--log", self.log, timeout=300)
            with open(f"{self.mnt}/.thermocline/stats.json", encoding="utf-8") as file:
                self.serving = json.load(file)["mount"]["pid"]
        return time.monotonic() - begun

    def dirty(self):
        if self.options.plain:
            return 0
        with open(f"{self.mnt}/.thermocline/stats.json", encoding="utf-8") as file:
            return self.find(json.load(file), "dirty")

    def find(self, tree, name):
        for key, value in tree.items():
            if key == name and isinstance(value, int):
                return value
            if isinstance(value, dict) and (found := self.find(value, name)) is not None:
                return found
        return None

    def make(self):
        """Both disks, and a database on base that no mount has seen; a copy of it for later."""
        pristine = f"{self.work}/pristine.img"
        self.ledger, self.base_failed = Ledger(), False
        self.flash.make()
        self.flash.mount()
        if os.path.exists(pristine):
            self.base.make(pristine)
            self.base.mount()
            return
        self.base.make()
        self.base.mount()
        data = f"{self.base.dir}/b/data"
        os.makedirs(data)
        run("chown", "-R", f"{self.database.user}:", f"{self.base.dir}/b")
        run("chmod", "700", data)
        self.database.make(data)
        self.base.copy(pristine)

    # --- the crash -----------------------------------------------------------------------------

    def crash(self, rng, kind):
        """Ends mount and database, and what has no power; returns what it did."""
        dead = {"kill": [], "base": [self.base], "flash": [self.flash],
                "both": [self.base, self.flash]}[kind][:]
        rng.shuffle(dead)
        self.base_failed = self.base_failed or self.base in dead
        sees = self.database.trusts_errors or self.options.errors
        ways = ["at once", "after kill"] + ["first"] * sees
        way, pause = rng.choice(ways), rng.choice([0, 0, 0, 0.01, 0.1, 0.5])
        if self.session is not None:
            self.session.ending = True
        if way == "at once":
            self.database.freeze()
            send(signal.SIGSTOP, [self.serving] if self.serving else [])
        if way != "after kill":
            for disk in dead:
                disk.power_failure()
        if way == "first":
            time.sleep(pause if dead else 0)
        if self.serving is not None:
            os.kill(self.serving, signal.SIGKILL)
        if way == "after kill":
            for disk in dead:
                disk.power_failure()
        pids = self.database.kill() + [self.serving or 0]
        if self.session is not None:
            self.session.end()
            self.session = None
        if self.serving is not None:
            run("umount", "-l", self.mnt, check=False)
        gone([pid for pid in pids if pid])
        self.serving = None
        for disk in dead:
            disk.unmount()
            disk.mount(rng.choice([1, 5, 30]))
        words = {"at once": "", "after kill": " after kill", "first": f" {pause} s before kill"}
        return kind + (words[way] if dead else "")

    def keep_copies(self):
        """What the restart begins with."""
        self.base.copy(f"{self.work}/before-base.img")
        self.flash.copy(f"{self.work}/before-flash.img")
        self.ledger.dump(f"{self.work}/ledger.json")

    def keep(self, number, words):
        """Moves a failed round's beginnings to where they stay."""
        to = f"{self.options.keep}/{os.path.basename(self.work)}-round-{number}"
        shutil.rmtree(to, ignore_errors=True)
        os.makedirs(to)
        for name in ("before-base.img", "before-flash.img"):
            if os.path.exists(f"{self.work}/{name}"):
                run("cp", "--sparse=always", f"{self.work}/{name}", f"{to}/{name}")
        for name in ("ledger.json", "mount.log", "run/server", "run/load"):
            if os.path.exists(f"{self.work}/{name}"):
                shutil.copy(f"{self.work}/{name}", to)
        with open(f"{to}/failure.txt", "w", encoding="utf-8") as file:
            file.write(words)
        return to

    # --- a round -------------------------------------------------------------------------------

    def toil(self, rng):
        """Work, for some seconds and until enough was done for a crash to matter."""
        least, begun = rng.uniform(2, 8), time.monotonic()
        while True:
            time.sleep(0.05)
            spent = time.monotonic() - begun
            if self.session.faults:
                raise Failure(self.session.faults[0])
            if self.database.server.poll() is not None:
                raise Failure(f"the server ended before the crash: {self.database.log_end()}")
            if (error := self.database.load_error()) is not None:
                raise Failure(f"the load ended before the crash: {error}")
            if spent > 60:
                return
            if spent > least and self.session.commits >= 40 and self.session.changes >= 8:
                return

    def restart(self, rng, row):
        self.policy, self.pool = rng.choice(POLICIES), rng.choice(POOLS)
        self.extra = self.database.choose(rng)
        row["mount"] = self.mount()
        begun = time.monotonic()
        self.database.launch(self.data())
        if rng.random() < 0.2 and not row["again"]:
            time.sleep(rng.uniform(0, 3))
            other = rng.choice(["kill", "base", "flash", "both"])
            row["again"] = self.crash(rng, self.options.only or other)
            self.keep_copies()
            self.restart(rng, row)
            return
        self.database.answers()
        row["server"] = time.monotonic() - begun

    def compare(self):
        """The ledger against the database; both go on from what was found."""
        found = {int(line) for line in self.database.one("SELECT id FROM ledger")}
        said, asked = self.ledger.said, self.ledger.asked
        if said - found:
            raise Failure(f"LOST {len(said - found)} commits: {sorted(said - found)[:20]}")
        if found - asked:
            raise Failure(f"{len(found - asked)} rows nobody wrote: {sorted(found - asked)[:20]}")
        self.ledger.said, self.ledger.asked = found, set(found)
        total = int(float(self.database.one("SELECT sum(balance) FROM account")[0]))
        if total != len(found):
            raise Failure(f"balances sum to {total}, the ledger has {len(found)} rows")
        there = self.database.content()
        for name in sorted(set(there) | set(self.ledger.tables)):
            self.compare_table(name, there.get(name))
        self.compare_pending(there)
        self.ledger.tables, self.ledger.pending = there, {}
        return len(found)

    def compare_table(self, name, now):
        before = self.ledger.tables.get(name)
        allowed = [before] + [p["after"][name] for p in self.ledger.pending.values()
                              if name in p["after"]]
        if now not in allowed:
            raise Failure(f"LOST: table {name} has {now} rows, may have {allowed}")

    def compare_pending(self, there):
        for pending in self.ledger.pending.values():
            after = pending["after"]
            done = {there.get(name) == rows for name, rows in after.items()}
            undone = {there.get(name) == self.ledger.tables.get(name) for name in after}
            if done != {True} and undone != {True}:
                raise Failure(f"half of a change: {pending['sql']}: {there}")

    def round(self, number, kind):
        rng = random.Random(f"{self.options.seed}:{number}")
        row = self.started = {"number": number, "kind": kind, "again": "", "mount": 0, "server": 0}
        row.update(policy=self.policy, pool=self.pool, extra=self.extra)
        self.session = Work(self.database, self.ledger, number, rng)
        self.toil(rng)
        session = self.session
        row["dirty"] = self.dirty()
        row["kind"] = self.crash(rng, kind)
        row.update(commits=session.commits, changes=session.changes)
        self.keep_copies()
        self.restart(rng, row)
        row["found"] = self.compare()
        self.database.quick_check()
        if number % 10 == 9:
            self.database.full_check(self.data())
        return row

    def last(self):
        """Full checks, a clean end, and base alone."""
        self.database.full_check(self.data())
        self.database.stop()
        if not self.options.plain:
            run(self.options.thermocline, "umount", self.mnt, timeout=900)
            self.serving = None
        self.database.base_check(f"{self.base.dir}/b/data")

    def clean(self):
        """Nothing of ours runs or is mounted afterwards."""
        try:
            if self.session is not None:
                self.session.ending = True
            pids = self.database.kill()
            if self.session is not None:
                self.session.end()
                self.session = None
            if self.serving is not None and os.path.exists(f"/proc/{self.serving}"):
                os.kill(self.serving, signal.SIGKILL)
                pids.append(self.serving)
            self.serving = None
            while os.path.ismount(self.mnt) or not self.reachable():
                subprocess.run(["umount", "-l", self.mnt], check=False, capture_output=True)
            gone(pids)
        finally:
            for disk in (self.base, self.flash):
                disk.detach()

    def reachable(self):
        try:
            os.listdir(self.mnt)
            return True
        except OSError:
            return False


def kinds(options):
    """A third of each, in any order; in each fourth failure of power both file systems fail."""
    rounds, all_ = options.rounds, []
    rng = random.Random(f"kinds:{options.seed}")
    if options.only:
        return [options.only] * rounds
    while len(all_) < rounds:
        three = ["kill", rng.choice(["base"] * 3 + ["both"]), rng.choice(["flash"] * 3 + ["both"])]
        rng.shuffle(three)
        all_ += three
    return all_[:rounds]


def arguments():
    parser = argparse.ArgumentParser(prog="power.sh", allow_abbrev=False)
    parser.add_argument("--database", choices=["postgres", "mariadb"], required=True)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--binary", "--thermocline", dest="thermocline")
    parser.add_argument("--size", default="32M", help="of the cache")
    parser.add_argument("--work", help="where a scratch directory is made, also for the images of both file systems")
    parser.add_argument("--keep", help="where failed rounds go (WORK/failed)")
    parser.add_argument("--minutes", type=float, default=600, help="begin no round after these")
    parser.add_argument("--plain", action="store_true", help="no mount: the control")
    parser.add_argument("--volatile", action="store_true", help="devices with caches of their own")
    parser.add_argument("--errors", action="store_true", help="MariaDB too sees failed disks")
    parser.add_argument("--lazy", action="store_true", help="MariaDB without dirsync on base")
    parser.add_argument("--only", choices=["kill", "base", "flash", "both"], help="this crash")
    options = parser.parse_args()
    # A directory of its own: at the end it is removed, with all that is in it.
    place = os.path.abspath(options.work or tempfile.gettempdir())
    os.makedirs(place, exist_ok=True)
    options.work = tempfile.mkdtemp(prefix="thermocline-power-", dir=place)
    options.keep = os.path.abspath(options.keep or f"{options.work}/failed")
    options.thermocline = os.path.abspath(options.thermocline)
    os.chmod(options.work, 0o755)
    return options


def show(row, result):
    kind = row["kind"] + (f"; again {row['again']}" if row["again"] else "")
    print(f"| {row['number']} | {kind} | {row['policy']} | {row['pool']} | {row['extra']} | "
          f"{row.get('commits', '')} | {row.get('changes', '')} | {row.get('dirty', '')} | "
          f"{row.get('found', '')} | {row['mount']:.2f} s | {row['server']:.2f} s | {result} |",
          flush=True)


def begin(rounds):
    """A fresh database under a fresh mount."""
    rounds.make()
    rounds.mount()
    rounds.database.launch(rounds.data())
    rounds.database.answers()


def attempt(rounds, number, kind):
    """A round; what the server does to itself without any mount is told apart."""
    try:
        return rounds.round(number, kind)
    except Failure as failure:
        if rounds.base_failed and rounds.database.own(str(failure)):
            raise ServersOwn(str(failure)) from failure
        raise


def campaign(options, rounds):
    """All rounds; how many began, what failed, and what was the server's own doing."""
    until, failures, owns, done = time.monotonic() + 60 * options.minutes, [], [], 0
    begin(rounds)
    print("| round | crash | policy | pool | server's option | commits | changes of tables | "
          "dirty pages | ledger | mount | server | result |")
    print("|---:|---|---|---|---|---:|---:|---:|---:|---:|---:|---|", flush=True)
    for number, kind in enumerate(kinds(options)):
        if time.monotonic() > until:
            break
        done += 1
        try:
            show(attempt(rounds, number, kind), "ok")
        except (Failure, OSError, ValueError, IndexError) as failure:
            own = isinstance(failure, (ServersOwn, Busy))
            words = f"{type(failure).__name__}: {failure}"
            kept = rounds.keep(number, f"{rounds.started}\n{words}\n")
            (owns if own else failures).append(f"round {number}: {words}\n  kept: {kept}")
            result = "not finished" if isinstance(failure, Busy) else "server's own"
            show(rounds.started, result if own else "**FAILED**")
            print(f"round {number}: {words}\n  kept: {kept}", file=sys.stderr, flush=True)
            rounds.clean()
            begin(rounds)
    try:
        rounds.last()
    except Failure as failure:
        failures.append(f"at the end: {failure}\n  kept: {rounds.keep('end', str(failure))}")
    return done, failures, owns


def main():
    options = arguments()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(3))
    begun, rounds = time.monotonic(), Rounds(options)
    try:
        done, failures, owns = campaign(options, rounds)
    finally:
        rounds.clean()
        if options.keep.startswith(options.work) and os.path.exists(options.keep):
            print(f"kept: {options.keep}", file=sys.stderr)
        else:
            shutil.rmtree(options.work)
    print(f"\n{options.database}, seed {options.seed}: {done} rounds in "
          f"{(time.monotonic() - begun) / 60:.0f} minutes, {len(failures)} failed, "
          f"{len(owns)} do not count (the server's own doing, or a busy device)")
    for failure in failures:
        print(failure)
    sys.exit(1 if failures else 0)


main()
