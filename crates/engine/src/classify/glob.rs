//! Patterns for paths: `*` and `?` stay within one component, `**` spans any number of them.
//!
//! Nothing else is special. A pattern without a slash is matched against the file's name
//! alone; one with a slash against the whole path relative to the mount.

/// Whether `path` (relative, components joined by `/`) matches `pattern`.
#[must_use]
pub fn matches(pattern: &str, path: &str) -> bool {
    if pattern.contains('/') {
        return walk(pattern.trim_start_matches('/').as_bytes(), path.as_bytes());
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    walk(pattern.as_bytes(), name.as_bytes())
}

/// Greedy matching with one point to fall back to for `**` and one for `*`; no recursion, and
/// at most `pattern x path` steps for a pattern with one of each.
fn walk(pattern: &[u8], path: &[u8]) -> bool {
    let (mut p, mut s) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    let mut deep: Option<(usize, usize)> = None;
    loop {
        debug_assert!(p <= pattern.len() && s <= path.len());
        debug_assert!(deep.is_none_or(|(after, from)| after <= p && from <= s));
        debug_assert!(star.is_none_or(|(after, from)| after <= p && from <= s));
        let rest = &pattern[p..];
        if rest.starts_with(b"**") {
            // `**/` also matches nothing at all.
            p += if rest.starts_with(b"**/") { 3 } else { 2 };
            (deep, star) = (Some((p, s)), None);
        } else if rest.first() == Some(&b'*') {
            p += 1;
            star = Some((p, s));
        } else if s < path.len() && fits(rest.first(), path[s]) {
            (p, s) = (p + 1, s + 1);
        } else if rest.is_empty() && s == path.len() {
            return true;
        } else if let Some((after, from)) = star.filter(|&(_, from)| within(path, from)) {
            star = Some((after, from + 1));
            (p, s) = (after, from + 1);
        } else if let Some((after, from)) = deep.filter(|&(_, from)| from < path.len()) {
            let from = next_start(pattern, after, path, from);
            (deep, star) = (Some((after, from)), None);
            (p, s) = (after, from);
        } else {
            return false;
        }
    }
}

fn fits(pattern: Option<&u8>, byte: u8) -> bool {
    match pattern {
        Some(b'?') => byte != b'/',
        Some(&wanted) => wanted == byte,
        None => false,
    }
}

/// Whether a `*` may swallow the byte at `at`.
fn within(path: &[u8], at: usize) -> bool {
    path.get(at).is_some_and(|&byte| byte != b'/')
}

/// Where to try again after `**`: behind the next slash for `**/`, else at the next byte.
fn next_start(pattern: &[u8], after: usize, path: &[u8], from: usize) -> usize {
    debug_assert!(from < path.len() && after <= pattern.len());
    let next = if pattern[..after].ends_with(b"/") {
        path[from..]
            .iter()
            .position(|&b| b == b'/')
            .map_or(path.len(), |n| from + n + 1)
    } else {
        from + 1
    };
    debug_assert!(from < next && next <= path.len(), "the search ends");
    next
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_stay_in_their_component() {
        for (pattern, path, expected) in [
            ("*.ibd", "shop/orders.ibd", true),
            ("*.ibd", "shop/orders.ibd.bak", false),
            ("shop/*.ibd", "shop/orders.ibd", true),
            ("shop/*.ibd", "shop/old/orders.ibd", false),
            ("**/pg_wal/*", "pg/data/pg_wal/0001", true),
            ("**/pg_wal/*", "pg_wal/0001", true),
            ("**/pg_wal/*", "my_pg_wal/0001", false),
            ("**/pg_wal/**", "a/pg_wal/archive_status/x.ready", true),
            ("a/**/z", "a/z", true),
            ("a/**/z", "a/b/c/z", true),
            ("a/**/z", "a/b/c/zz", false),
            ("t?_*", "base/5/t3_16402", true),
            ("t?_*", "base/5/t33_16402", false),
            ("**", "anything/at/all", true),
            ("/pg_wal/*", "pg_wal/0001", true),
            ("", "x", false),
            ("a*b*c", "aXbYbZc", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} on {path}");
        }
    }
}
