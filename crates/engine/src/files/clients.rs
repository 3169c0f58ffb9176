//! Several databases on one mount: each is a client of its own, whose hints are its own (thesis
//! §3.1: the same names from two clients are distinct).
//!
//! The setting lists their directories. A file below the n-th of them is of client n, counted from
//! 1; every other file is of client 0. A file that is renamed into another directory changes its
//! client when it is opened next, also where it was the directory that was renamed.

use crate::engine::Engine;
use crate::files::object::Counted;
use crate::observe::stats::{ClientStats, ObjectStats};
use std::collections::{BTreeMap, BTreeSet};
use thermocline_core::hint_type;
use thermocline_trace::Recorder;

/// Directories at most: each opening of a file looks through them.
const CLIENTS_MAX: usize = 4096;

/// The hint type of a trace that names the client of a request: the first after the built-in ones.
pub(crate) const POSITION: usize = hint_type::FIRST_CUSTOM;

/// The client of the file called `name` among those with these `directories`.
pub(crate) fn client_of(directories: &[String], name: &str) -> u32 {
    let below = |directory: &String| {
        let rest = name.strip_prefix(directory.as_str());
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    let at = directories.iter().position(below);
    at.map_or(0, |at| u32::try_from(at + 1).unwrap_or(0))
}

/// Whether `directories` can be told apart: paths below the base, none in another, and at most
/// [`CLIENTS_MAX`]. O(bytes · log directories).
pub(crate) fn are_apart(directories: &[String]) -> bool {
    if directories.len() > CLIENTS_MAX {
        return false;
    }
    let plain = |name: &String| {
        let mut parts = name.split('/');
        parts.all(|part| !part.is_empty() && part != "." && part != "..")
    };
    let all: BTreeSet<&str> = directories.iter().map(String::as_str).collect();
    let above = |name: &str| {
        name.match_indices('/')
            .any(|(at, _)| all.contains(&name[..at]))
    };
    let apart = all.len() == directories.len() && !all.iter().any(|name| above(name));
    apart && directories.iter().all(plain)
}

impl Engine {
    /// Whether databases on it are told apart.
    #[must_use]
    #[doc(hidden)]
    pub fn has_clients(&self) -> bool {
        !self.config.clients.is_empty()
    }

    /// Gives a trace the names of the clients.
    pub(crate) fn name_clients(&self, recorder: &Recorder) {
        for (name, number) in self.config.clients.iter().zip(1..) {
            recorder.name_hint_value(POSITION, number, name);
        }
    }

    /// What was counted of each client, in the order of the setting; last, where it has any, what
    /// is of none. `gone` is what is not of `objects` any more, by number. Empty without clients.
    /// O(objects × clients).
    pub(crate) fn client_stats(
        &self,
        objects: &[ObjectStats],
        gone: &BTreeMap<u32, Counted>,
    ) -> Vec<ClientStats> {
        let directories = &self.config.clients;
        if directories.is_empty() {
            return Vec::new();
        }
        let name = |name: &str| ClientStats {
            name: name.to_string(),
            ..ClientStats::default()
        };
        let mut clients: Vec<ClientStats> = directories.iter().map(|of| name(of)).collect();
        let mut rest = name("");
        let mut add = |number: u32, resident: u32, counted: Counted| {
            let at = (number as usize).checked_sub(1);
            let of = at.and_then(|at| clients.get_mut(at)).unwrap_or(&mut rest);
            of.resident += u64::from(resident);
            of.reads += counted.reads;
            of.hits += counted.hits;
            of.writes += counted.writes;
        };
        for object in objects {
            let counted = Counted {
                reads: object.reads,
                hits: object.hits,
                writes: object.writes,
            };
            add(
                client_of(directories, &object.name),
                object.resident,
                counted,
            );
        }
        gone.iter()
            .for_each(|(number, counted)| add(*number, 0, *counted));
        if rest != name("") {
            clients.push(rest);
        }
        clients
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_is_of_the_client_whose_directory_it_is_in() {
        let clients = names(&["orders", "old/reports"]);
        for (name, client) in [
            ("orders/base/5/1259", 1),
            ("orders", 0),
            ("orders2/base/1", 0),
            ("old/reports/ibdata1", 2),
            ("old/base/1", 0),
        ] {
            assert_eq!(client_of(&clients, name), client, "{name}");
        }
        assert_eq!(client_of(&[], "orders/base/1"), 0);
    }

    #[test]
    fn directories_that_cannot_be_told_apart_are_refused() {
        assert!(are_apart(&names(&[])) && are_apart(&names(&["a", "ab", "b/c"])));
        for wrong in [
            &["a", "a"][..],
            &["a", "a/b"],
            &["/a"],
            &["a/"],
            &[""],
            &["../a"],
        ] {
            assert!(!are_apart(&names(wrong)), "{wrong:?}");
        }
        // One in another is found though others come between them in order.
        assert!(!are_apart(&names(&["a", "a!", "a b", "a/b/c"])));
        let many = |count: usize| (0..count).map(|at| format!("tenants/{at}"));
        assert!(are_apart(&many(CLIENTS_MAX).collect::<Vec<_>>()));
        assert!(!are_apart(&many(CLIENTS_MAX + 1).collect::<Vec<_>>()));
    }
}
