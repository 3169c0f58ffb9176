"""File systems that can lose power, and processes that are ended for good."""
import fcntl
import os
import signal
import struct
import subprocess
import time

EXT4_IOC_SHUTDOWN = 0x8004587D
NOLOGFLUSH = 2
LOOP_CTL_ADD = 0x4C80


class Failure(Exception):
    """What must not happen to the user of a mount."""


class Busy(OSError):
    """A mount namespace made elsewhere keeps a file system: nothing of ours, and no result."""


class ServersOwn(Failure):
    """What the server does to itself on a plain directory too."""


def run(*command, timeout=300, check=True, **more):
    """A command's end, with what it said; what it says goes into the failure if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, **more)
    except subprocess.TimeoutExpired as late:
        raise Failure(f"{command[0]} took more than {timeout} s: {command}") from late
    if check and done.returncode:
        raise Failure(f"{' '.join(command)[:200]}: {done.returncode}: {done.stdout}{done.stderr}")
    return done


def loop_device(wanted):
    """A loop device that nobody uses, with a number that is ours for the whole campaign."""
    with open("/dev/loop-control", "rb") as control:
        while True:
            try:
                fcntl.ioctl(control, LOOP_CTL_ADD, wanted)
                return f"/dev/loop{wanted}"
            except FileExistsError:
                wanted += 1


class Disk:
    """An ext4 on a loop device, whose power can fail: what was not synced is gone then."""

    def __init__(self, work, name, size, options):
        self.image, self.dir, self.options = f"{work}/{name}.img", f"{work}/{name}", options
        self.size, self.device, self.mounted, self.attached = size, None, False, False
        os.makedirs(self.dir, exist_ok=True)

    def make(self, image=None):
        """A fresh file system, or one like that of another image."""
        if image:
            run("cp", "--sparse=never", image, self.image)
            return
        if os.path.exists(self.image):
            os.unlink(self.image)
        run("fallocate", "-l", self.size, self.image)
        run("mkfs.ext4", "-q", "-E", "nodiscard", self.image)

    def mount(self, commit=5):
        if self.device is None:
            self.device = loop_device(200 + os.getpid() % 50000 * 4)
        if not self.attached:
            run("losetup", self.device, self.image)
            self.attached = True
        run("mount", "-o", f"{self.options}commit={commit}", self.device, self.dir)
        self.mounted = True

    def power_failure(self):
        fd = os.open(self.dir, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
        finally:
            os.close(fd)

    def unmount(self):
        """Until nothing has the device: a mount namespace made elsewhere meanwhile may have a copy
        of the mount, and with it a file system that stays shut down."""
        for _ in range(3000):
            if self.mounted and run("umount", self.dir, check=False).returncode == 0:
                self.mounted = False
            if not self.mounted and self.free():
                return
            time.sleep(0.1)
        raise Busy(f"{self.dir} or {self.device} stays busy")

    def free(self):
        try:
            os.close(os.open(self.device, os.O_RDWR | os.O_EXCL))
            return True
        except OSError:
            return False

    def detach(self):
        if self.mounted:
            Disk.unmount(self)
        if self.attached:
            run("losetup", "-d", self.device)
            self.attached = False

    def copy(self, to):
        run("fsfreeze", "-f", self.dir)
        try:
            run("cp", "--sparse=always", self.image, to)
        finally:
            run("fsfreeze", "-u", self.dir)


class VolatileDisk(Disk):
    """A disk whose device has a cache of its own: what was written and not flushed is gone too,
    but for what the kernel has written back by then. The image lies on another such file system,
    which is the one that is shut down."""

    def __init__(self, work, name, size, options):
        os.makedirs(f"{work}/{name}-device", exist_ok=True)
        outer = str(int(size.rstrip("M")) * 5 // 4 + 20) + "M"
        self.under = Disk(work, f"{name}-device", outer, "")
        super().__init__(work, name, size, options)
        self.image = f"{self.under.dir}/{name}.img"

    def make(self, image=None):
        self.under.make()
        self.under.mount()
        super().make(image)
        run("sync", self.image)

    def mount(self, commit=5):
        if not self.under.mounted:
            self.under.mount()
        super().mount(commit)

    def power_failure(self):
        self.under.power_failure()

    def unmount(self):
        super().detach()
        self.under.unmount()

    def detach(self):
        if self.mounted or self.attached:
            super().detach()
        self.under.detach()


def children(pid):
    """Processes that a process has started."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
            found += [int(word) for word in file.read().split()]
    return found


def send(number, pids):
    """A signal to processes that may be gone."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def stop_all(pid):
    """SIGSTOP for a process and its children; which they are."""
    send(signal.SIGSTOP, [pid])
    try:
        pids = [pid] + children(pid)
    except (ProcessLookupError, FileNotFoundError):
        pids = [pid]
    send(signal.SIGSTOP, pids)
    return pids


def kill_all(pid):
    """SIGKILL for a process and its children, of which it starts no more."""
    pids = stop_all(pid)
    send(signal.SIGKILL, pids)
    return pids


def gone(pids, seconds=120):
    """Waits until processes have ended."""
    until = time.monotonic() + seconds
    for pid in pids:
        while os.path.exists(f"/proc/{pid}"):
            try:
                with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                        break
            except (FileNotFoundError, ProcessLookupError):
                break
            if time.monotonic() > until:
                raise Failure(f"process {pid} does not end {seconds} s after SIGKILL")
            time.sleep(0.02)
