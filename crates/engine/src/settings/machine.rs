//! How much memory the machine has, as far as this process may use it.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Bytes of the machine's memory, or of the control group's that this process is in, if that is
/// less; `None` where neither can be read. Read once: the answer stays the same.
pub(crate) fn memory() -> Option<u64> {
    static MEMORY: OnceLock<Option<u64>> = OnceLock::new();
    *MEMORY.get_or_init(|| {
        let read = |path: &Path| fs::read_to_string(path).ok();
        let all = read(Path::new("/proc/meminfo")).and_then(|text| total(&text));
        let groups = read(Path::new("/proc/self/cgroup"));
        let group = groups.as_deref().and_then(group);
        [all, group].into_iter().flatten().min()
    })
}

/// `MemTotal` of /proc/meminfo, which counts units of 1024 bytes.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: u64 = line?.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The least limit of the control group that `text`, /proc/self/cgroup, names, and of those that it
/// is in (version 2).
fn group(text: &str) -> Option<u64> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let groups = Path::new("/sys/fs/cgroup").join(path);
    let limit = |group: &Path| -> Option<u64> {
        // "max" is no number: no limit.
        let text = fs::read_to_string(group.join("memory.max")).ok()?;
        text.trim().parse().ok()
    };
    let within = groups.ancestors();
    within
        .take_while(|group| group.starts_with("/sys/fs/cgroup"))
        .filter_map(limit)
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_in_kib() {
        let text = "MemFree: 3 kB\nMemTotal:       24689764 kB\nSwapTotal: 7 kB\n";
        assert_eq!(total(text), Some(24_689_764 * 1024));
        assert_eq!(total("MemFree: 3 kB\n"), None);
        assert_eq!(total("MemTotal: many kB\n"), None);
        assert_eq!(group("12:memory:/x\n"), None, "version 1");
    }

    #[test]
    fn this_machine_has_some() {
        assert!(memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
