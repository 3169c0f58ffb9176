//! The steps of a workload, drawn from a seed.

use crate::draw::Draw;
use crate::setup::{Mode, Setup};
use crate::world::{Failing, Fault};
use thermocline_core::policy;

/// Objects a workload has at a time.
pub const FILES: usize = 3;
/// Pages of an object at most.
const PAGES: u64 = 20;

/// One thing that a frontend, the tier's owner or a device does. Objects are numbered from 0.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read from an offset, with a request hint.
    Read(usize, u64, usize, u32),
    /// Write at an offset, with a request hint.
    Write(usize, u64, usize, u32),
    /// Sync.
    Sync(usize),
    /// Cut or extend.
    Truncate(usize, u64),
    /// Punch a hole.
    Punch(usize, u64, u64),
    /// Unlink; another object with the same inode number and another generation takes its place.
    Recreate(usize),
    /// Another name.
    Rename(usize),
    /// Close and open again.
    Reopen(usize),
    /// Stop cleanly and start again.
    Restart,
    /// Lose power, and go on with what is found.
    PowerCut,
    /// So many units of background work.
    Work(u32),
    /// Nothing for so many thousandths of a second.
    Wait(u32),
    /// Write-back, or write-through.
    WriteBack(bool),
    /// Write every dirty page to base.
    Flush,
    /// A tier of so many pages, as far as the store allows.
    Resize(u64),
    /// Another tier policy.
    Policy(&'static str),
    /// Stop using flash.
    TierOff,
    /// Use it again.
    TierOn,
    /// The flash device (`None`) or a base file does something wrong.
    Fault(Option<usize>, Fault),
}

/// Draws the next step.
pub fn draw_step(draw: &mut Draw, setup: &Setup) -> Step {
    let file = draw.below(FILES as u64) as usize;
    let page = u64::from(setup.page_size);
    match draw.below(100) {
        0..9 => Step::Work(1 + draw.below(6) as u32),
        9 => Step::Wait(draw.one(&[100, 1_700, 4_100, 5_900, 7_000])),
        10..34 => {
            let (offset, length) = draw_range(draw, page);
            Step::Read(file, offset, length, draw.below(8) as u32)
        }
        34..66 => {
            let (offset, length) = draw_range(draw, page);
            Step::Write(file, offset, length, draw.below(8) as u32)
        }
        66..80 => Step::Sync(file),
        80..83 => Step::Truncate(file, draw_offset(draw, page)),
        83..86 => {
            let (offset, length) = draw_range(draw, page);
            Step::Punch(file, offset, length as u64)
        }
        86..88 => Step::Recreate(file),
        88..89 => Step::Rename(file),
        89..92 => Step::Reopen(file),
        92..94 => Step::Restart,
        94..95 => Step::PowerCut,
        95 => Step::Policy(draw.one(policy::NAMES)),
        96 => Step::Resize(draw.one(&[4, 8, 16, 24, 40, 64])),
        _ => draw_rarity(draw, setup),
    }
}

fn draw_rarity(draw: &mut Draw, setup: &Setup) -> Step {
    let device = draw.one(&[None, Some(0), Some(1), Some(2)]);
    if setup.faults && draw.chance(1, 2) {
        return Step::Fault(device, draw_fault(draw, device.is_none()));
    }
    match draw.below(8) {
        0 => Step::TierOff,
        1 | 2 => Step::TierOn,
        3 if setup.mode == Mode::Back => Step::WriteBack(false),
        4 | 5 if setup.mode == Mode::Back => Step::WriteBack(true),
        6 => Step::Flush,
        _ => Step::Work(20),
    }
}

fn draw_fault(draw: &mut Draw, flash: bool) -> Fault {
    if flash && draw.chance(1, 8) {
        return Fault::Die;
    }
    Fault::Fail {
        what: draw.one(&[Failing::Reads, Failing::Writes, Failing::Syncs]),
        skip: draw.below(4) as u32,
        times: 1 + draw.below(3) as u32,
    }
}

/// An offset: mostly the start of a page, and mostly of one of the first pages.
fn draw_offset(draw: &mut Draw, page: u64) -> u64 {
    let pages = draw.one(&[4, 8, PAGES]);
    let inside = draw.one(&[0, 0, 0, 100, 300]);
    draw.below(pages) * page + inside
}

fn draw_range(draw: &mut Draw, page: u64) -> (u64, usize) {
    let offset = draw_offset(draw, page);
    let length = match draw.below(10) {
        0..6 => page,
        6..8 => page * (2 + draw.below(4)),
        8 => 1 + draw.below(page),
        _ => page + draw.below(2 * page),
    };
    (offset, length as usize)
}
