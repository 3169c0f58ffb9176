//! The steps of a workload, drawn from a seed.

use crate::draw::Draw;
use crate::setup::{Mode, Setup};
use crate::world::{Failing, Fault};
use thermocline_core::policy;

/// Objects a workload has at a time.
pub const FILES: usize = 3;
/// Pages of an object at most.
const PAGES: u64 = 20;

/// One thing that a frontend, the tier's owner or a device does. Objects are numbered from 0;
/// requests for number [`FILES`] are for one that is open without a name.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read from an offset, with a request hint.
    Read(usize, u64, usize, u32),
    /// Write at an offset, with a request hint.
    Write(usize, u64, usize, u32),
    /// Write so many bytes at the end, with a request hint.
    Append(usize, usize, u32),
    /// Bring all of it to flash, as from a list of what was hot.
    Warm(usize),
    /// Sync.
    Sync(usize),
    /// Write a page again and again, with a request hint: once before a sync, and once while its
    /// so many-th write to flash is under way. Then sync again.
    Rewrite(usize, u64, u32, u32),
    /// Cut or extend.
    Truncate(usize, u64),
    /// Punch a hole.
    Punch(usize, u64, u64),
    /// Unlink, open or closed; another object with the same inode number and another generation
    /// takes its place.
    Unlink(usize),
    /// The first gets the name of the second, which loses it.
    Replace(usize, usize),
    /// Another name; by a link and an unlink if that is said.
    Rename(usize, bool),
    /// Change attributes, after so many thousandths of a second in which nothing happens.
    Attributes(usize, u32),
    /// Close; the next request opens it again.
    Close(usize),
    /// Close a file that has no name.
    Bury,
    /// Stop cleanly and start again.
    Restart,
    /// Lose power, and go on with what is found.
    PowerCut,
    /// End, cleanly or by a loss of power, and serve base with something else, where its mark lets
    /// that be.
    Elsewhere(With, bool),
    /// Stop cleanly; a program that asks nobody writes a page of a file, so many thousandths of a
    /// second later; start again.
    Behind(usize, u64, u32),
    /// A snapshot is taken of base.
    Snapshot,
    /// End, cleanly or by a loss of power; base goes back to the snapshot; start again.
    RollBack(bool),
    /// End, cleanly or by a loss of power; base's mark is lost; start again.
    LoseMark(bool),
    /// Another opening of the cache begins while it is served.
    Renew,
    /// The directory of base, on which its mark is, does something wrong.
    DirectoryFault(Failing),
    /// So many units of background work.
    Work(u32),
    /// A commit of the map, and the next one that is written meanwhile.
    CommitTwo,
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

/// What base is served with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum With {
    /// The cache there is.
    This,
    /// The other cache.
    Other,
    /// No cache.
    Nothing,
}

/// Draws the next step.
pub fn draw_step(draw: &mut Draw, setup: &Setup) -> Step {
    let file = draw.below(FILES as u64) as usize;
    let any = if draw.chance(1, 8) { FILES } else { file };
    let page = u64::from(setup.page_size);
    match draw.below(100) {
        0..3 => Step::Work(1 + draw.below(6) as u32),
        3..6 => draw_base(draw, file),
        6..9 => Step::CommitTwo,
        9 => Step::Wait(draw.one(&[100, 1_700, 4_100, 5_900, 7_000])),
        10 => Step::Warm(any),
        11..34 => {
            let (offset, length) = draw_range(draw, page);
            Step::Read(any, offset, length, draw.below(8) as u32)
        }
        34..60 => {
            let (offset, length) = draw_range(draw, page);
            Step::Write(any, offset, length, draw.below(8) as u32)
        }
        60..66 => Step::Append(any, draw_range(draw, page).1, draw.below(8) as u32),
        66..78 => Step::Sync(any),
        78..80 => {
            let (page, skip) = (draw.below(8), draw.below(3) as u32);
            Step::Rewrite(any, page, draw.below(8) as u32, skip)
        }
        80..83 => Step::Truncate(any, draw_offset(draw, page)),
        83..86 => {
            let (offset, length) = draw_range(draw, page);
            Step::Punch(any, offset, length as u64)
        }
        86..93 => draw_names(draw, file),
        93 => Step::Restart,
        94..95 => Step::PowerCut,
        95 => Step::Policy(draw.one(policy::NAMES)),
        96 => Step::Resize(draw.one(&[4, 8, 16, 24, 40, 64])),
        _ => draw_rarity(draw, setup),
    }
}

/// What happens to base between two openings of a cache.
fn draw_base(draw: &mut Draw, file: usize) -> Step {
    let clean = draw.chance(1, 2);
    match draw.below(20) {
        0..3 => Step::Elsewhere(With::Other, clean),
        3..6 => Step::Elsewhere(With::Nothing, clean),
        6..8 => Step::Elsewhere(With::This, clean),
        8 => Step::Snapshot,
        9..13 => Step::RollBack(draw.chance(1, 4)),
        13 => Step::LoseMark(clean),
        14 => Step::Behind(file, draw.below(8), draw.one(&[0, 100, 7_000])),
        15..19 => Step::Renew,
        _ => Step::DirectoryFault(draw.one(&[Failing::Writes, Failing::Syncs])),
    }
}

/// What is done to names and attributes, opens and closes.
fn draw_names(draw: &mut Draw, file: usize) -> Step {
    match draw.below(12) {
        0 | 1 => Step::Unlink(file),
        2 => Step::Replace(file, draw.below(FILES as u64) as usize),
        3 => Step::Rename(file, draw.chance(1, 2)),
        4 | 5 => Step::Attributes(file, draw.one(&[0, 7_000])),
        6..9 => Step::Bury,
        _ => Step::Close(file),
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
    if flash && draw.chance(1, 3) {
        return Fault::Fail {
            what: Failing::Late,
            skip: draw.below(4) as u32,
            times: 1,
        };
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
