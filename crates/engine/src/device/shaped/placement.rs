//! Where files are on an emulated drive.

use std::collections::BTreeMap;

/// Bytes that stay together on the drive. Each takes one map entry (about 40 bytes of memory).
const CHUNK: u64 = 256 << 10;

const _: () = assert!(CHUNK.is_power_of_two());

/// A consecutive range on the emulated drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) position: u64,
    pub(super) len: u64,
}

/// Where the chunks of each object are on the drive: in the order they were first touched,
/// except that a whole file is placed at once when it is attached.
#[derive(Debug, Default)]
pub(super) struct Placement {
    chunks: BTreeMap<(u64, u64), u64>,
    next: u64,
}

impl Placement {
    fn chunk(&mut self, object: u64, index: u64) -> u64 {
        let slot = *self.chunks.entry((object, index)).or_insert_with(|| {
            self.next += 1;
            self.next - 1
        });
        debug_assert!(slot < self.next && self.next <= u64::MAX / CHUNK);
        debug_assert_eq!(self.chunks.len() as u64, self.next, "each place given once");
        slot
    }

    /// Places the first `len` bytes of an object, in one piece if none of them has a place yet.
    pub(super) fn place_whole(&mut self, object: u64, len: u64) {
        for index in 0..len.div_ceil(CHUNK) {
            self.chunk(object, index);
        }
    }

    /// The extents of a range, neighbours merged; at least one.
    pub(super) fn extents(&mut self, object: u64, offset: u64, len: u64) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::with_capacity(1);
        let (mut at, end) = (offset, offset.saturating_add(len));
        loop {
            let part = (CHUNK - at % CHUNK).min(end - at);
            debug_assert!(part > 0 || len == 0, "every step brings the end nearer");
            let slot = self.chunk(object, at / CHUNK);
            let position = slot.wrapping_mul(CHUNK).wrapping_add(at % CHUNK);
            match extents.last_mut() {
                Some(last) if last.position + last.len == position => last.len += part,
                _ => extents.push(Extent {
                    position,
                    len: part,
                }),
            }
            at += part;
            if at >= end {
                debug_assert_eq!(extents.iter().map(|e| e.len).sum::<u64>(), end - offset);
                return extents;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placement_keeps_files_together_and_apart() {
        let mut placement = Placement::default();
        assert_eq!(
            placement.extents(1, 100, 2 * CHUNK),
            [Extent {
                position: 100,
                len: 2 * CHUNK
            }]
        );
        let other = placement.extents(2, 0, 10);
        assert_eq!(
            other,
            [Extent {
                position: 3 * CHUNK,
                len: 10
            }]
        );
        // The first file goes on behind the second, in two pieces from now on.
        let split = placement.extents(1, 3 * CHUNK - 1, 2);
        assert_eq!(
            split,
            [
                Extent {
                    position: 3 * CHUNK - 1,
                    len: 1
                },
                Extent {
                    position: 4 * CHUNK,
                    len: 1
                }
            ]
        );
        assert_eq!(placement.extents(2, 0, 10), other, "places do not move");
    }

    #[test]
    fn a_whole_file_is_one_extent_even_when_read_backwards() {
        let mut placement = Placement::default();
        placement.place_whole(7, 3 * CHUNK + 1);
        placement.extents(7, 3 * CHUNK, 1);
        assert_eq!(placement.extents(7, 0, 4 * CHUNK).len(), 1);
        assert_eq!(placement.extents(8, 0, 1)[0].position, 4 * CHUNK);
    }
}
