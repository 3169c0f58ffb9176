//! One row of a trace: what was asked, by whom, how long it took and where it was served.
//!
//! A [`TraceRecord`] is a fixed-size value: recording one copies 112 bytes and allocates
//! nothing. Names (of objects, of hint values) are kept apart and joined when a row is written.

use std::borrow::Cow;

use thermocline_core::{HintSet, ObjectId};

/// One request as the engine saw it, recorded when it completed.
///
/// The shape follows Pebble's `objiotracing` event (time, op, reason, block kind, file, offset,
/// size), where reason and block kind have become the hint set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When the request arrived: nanoseconds since the start of the trace.
    pub time_ns: u64,
    /// Who asked: a number the frontend gives out (a process id on a mount, a connection number
    /// on a server). Means something only within one trace.
    pub client: u32,
    /// What was asked.
    pub op: Op,
    /// Where the answer came from.
    pub served: Served,
    /// The object the request addresses.
    pub object: ObjectId,
    /// First byte addressed, from the start of the object. 0 for [`Op::Sync`].
    pub offset: u64,
    /// Bytes moved (reads and writes; a read cut short by the end of the object counts what it
    /// returned) or discarded (trims). 0 for [`Op::Sync`].
    pub length: u64,
    /// From arrival to completion, in nanoseconds.
    pub latency_ns: u64,
    /// What the request said about itself; 0 in a position is unknown and becomes null.
    pub hints: HintSet,
}

// The memory formula in `recorder` and in docs/trace-format.md rests on this size.
const _: () = assert!(size_of::<TraceRecord>() == 112);

/// Declares an enum written to a trace under stable names.
macro_rules! trace_word {
    (
        $(#[$doc:meta])*
        $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$vdoc])* $variant),+
        }

        impl $name {
            /// Every value, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word in the file.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// The value with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.name() == name)
            }

            /// Position in [`Self::ALL`], for tables indexed by this type.
            #[must_use]
            pub const fn at(self) -> usize {
                self as usize
            }
        }
    };
}

trace_word! {
    /// What a request does.
    Op {
        /// Bytes are returned.
        Read = "read",
        /// Bytes are changed.
        Write = "write",
        /// Bytes are given up: a hole, the tail after a truncation, or (offset 0, length = the
        /// object's length) the whole object because it was unlinked.
        Trim = "trim",
        /// Earlier writes of the object are made durable.
        Sync = "sync",
    }
}

trace_word! {
    /// Which layer answered a request.
    Served {
        /// Not known (traces of other tools), or the question makes no sense (trim, sync).
        Unknown = "unknown",
        /// A frame of the DRAM pool.
        Pool = "pool",
        /// The bounded write buffer: admitted, but not on flash yet.
        Buffer = "buffer",
        /// A flash slot.
        Flash = "flash",
        /// Base, on behalf of the tier: a miss, or the base half of a write-through.
        Base = "base",
        /// Base, because a rule or a tier that is off sent the request past the tier.
        Bypass = "bypass",
        /// Pages of one request came from more than one layer.
        Mixed = "mixed",
    }
}

impl Served {
    /// The place of a request whose pages so far came from `self` and whose next page came from
    /// `other`: equal places stay, different ones become [`Served::Mixed`].
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, place) | (place, Self::Unknown) => place,
            (a, b) if a == b => a,
            _ => Self::Mixed,
        }
    }
}

/// A name as a terminal may get it: whoever made a trace, or a file, chose it, so control
/// characters are shown as escapes.
#[must_use]
pub fn printable(name: &str) -> Cow<'_, str> {
    match name.contains(char::is_control) {
        true => Cow::Owned(name.escape_debug().collect()),
        false => Cow::Borrowed(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for &op in Op::ALL {
            assert_eq!(Op::from_name(op.name()), Some(op));
            assert_eq!(Op::ALL[op.at()], op);
        }
        for &served in Served::ALL {
            assert_eq!(Served::from_name(served.name()), Some(served));
            assert_eq!(Served::ALL[served.at()], served);
        }
        assert_eq!(Op::from_name("READ"), None);
    }

    #[test]
    fn places_combine() {
        assert_eq!(Served::Unknown.and(Served::Flash), Served::Flash);
        assert_eq!(Served::Flash.and(Served::Flash), Served::Flash);
        assert_eq!(Served::Flash.and(Served::Base), Served::Mixed);
        assert_eq!(Served::Mixed.and(Served::Base), Served::Mixed);
    }
}
