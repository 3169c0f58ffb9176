//! The crash tester: the whole engine on simulated disks that lose power at every request.
//!
//! A run is a workload from a seed: reads, writes, appends, syncs, cuts, holes, unlinks, renames
//! (over others too), links, changes of attributes, closes, use of files without a name, clean
//! restarts, power cuts, background work, waiting, switches of mode, policy, size, tier. An
//! engine without threads carries it out step by step. Before every request that changes a disk a
//! power cut is tried: another engine starts from what it would leave, every byte is compared with
//! a model, and while that engine recovers there are further power cuts, three deep.
//!
//! # What the disks do
//!
//! | event | what happens |
//! |---|---|
//! | a write, cut or hole | it is read back at once, and waits for a sync of its file |
//! | power cut | of what waits any subset is kept, by sectors of 512 bytes: torn, out of order |
//! | the file's times of change | kept or not, each file by itself |
//! | files are made, renamed, linked, unlinked | read back at once; a power cut keeps what was
//! done |
//! | | up to some moment; a sync of any file or directory makes all durable (`directory.rs`) |
//! | room is set aside for a file that grows | its length waits for a sync, as a write does; in |
//! | | a quarter of the runs base cannot (`Device::reserve`) |
//! | a planned fault: a write fails | any of its sectors are there or not |
//! | a planned fault: no room | the file may be longer, by a part of what was asked for |
//! | a planned fault: a sync fails | each change becomes durable or is *forgotten*: read back |
//! | | until the next power cut, and no later sync writes it |
//! | a planned fault: a read fails | nothing is read |
//! | a planned fault: a write is late (flash) | it times out, and arrives at some later request, in
//! part |
//! | | or never, at the latest before a restart; no sync covers it |
//! | a device dies | every request fails until it is healed, which a restart and a power cut do |
//!
//! What they never do: lose or change what a sync that succeeded covered; tear a sector; make bytes
//! that nobody wrote; report success for a sync that did nothing (`Fault::LieOnSync` does, to prove
//! that the tester notices).
//!
//! # What counts as acknowledged, and what is compared
//! What was written before a sync that the engine answered with success, unless an earlier sync
//! failed and the sector was not written again. After a power cut each sector and the length must
//! be what they were at the last such sync, or any version since; while the engine runs a read must
//! give the newest. A file that was synced is there after a power cut unless its last name went;
//! one that lost its name may be back, with all that was acknowledged. What was read after a power
//! cut must be there after the next one (`model.rs`).
//!
//! # What may be refused
//! Where flash failed with dirty pages, base went on after the lease and flash is back after a
//! power cut, the start is refused; so it is where such a file was removed. That is counted, and
//! only then accepted; dirty pages are given up, and what is served must be base's own bytes, with
//! no more old sectors than there were dirty pages (`run.rs`).
//!
//! # Base between two openings
//! Every engine serves under a claim, as a mount does, and base's mark is an attribute of its
//! directory: a change of it survives a power cut as a change of a name does. Base is served with
//! another cache or with none, changed by a program that asks nobody, rolled back to a snapshot,
//! and loses its mark; what may be served then, or refused, is in `elsewhere.rs`. Images of power
//! cuts are recovered from with another cache too.
//!
//! # What is not tried
//! Two hosts at a time (scenes do: `tests/claims.rs`). A snapshot of base from the same opening,
//! which nobody notices.
//! Threads (`shuttle`, `ids` and `engine_model` in `crates/engine/tests` do that); reads that are
//! late; damage of bytes at rest (tests of the store). After a sync of base
//! has failed, a clean restart is a power
//! cut: nobody can tell what base holds before its machine starts anew.
//!
//! # One seed again
//! Everything comes from the seed; a failure prints the command that repeats it, with `--trace`
//! step by step: `cargo run --release -p thermocline-crash -- --seed N --mode back --trace`.

mod clock;
mod directory;
mod draw;
mod elsewhere;
mod image;
mod meanwhile;
mod model;
mod names;
mod run;
mod serve;
mod setup;
mod step;
mod store_run;
mod tracked;
mod verify;
mod world;

pub use clock::WorldClock;
pub use draw::Draw;
pub use image::{Image, SECTOR};
pub use model::{Broken, FileModel, pattern};
pub use run::{Failure, Options, Tally, run};
pub use serve::{Ended, NoStart, Served};
pub use setup::{Mode, Setup, spec_of};
pub use step::{FILES, Step, draw_step};
pub use store_run::run_store;
pub use world::{
    BARE_DEVICE, DIRECTORY, Failing, Fault, FileId, Io, IoKind, Observer, PowerDisk, Snapshot,
    State, World,
};
