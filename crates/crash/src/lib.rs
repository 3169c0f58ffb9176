//! The crash tester: the whole engine on simulated disks that lose power at every request.

mod draw;
mod image;
mod model;
mod run;
mod setup;
mod step;
mod store_run;
mod world;

pub use draw::Draw;
pub use image::{Image, SECTOR};
pub use model::{Broken, FileModel, pattern};
pub use run::{Failure, Options, Tally, run};
pub use setup::{Mode, NoStart, Setup, spec_of};
pub use step::{FILES, Step, draw_step};
pub use store_run::run_store;
pub use world::{
    BARE_DEVICE, Failing, Fault, FileId, Io, IoKind, Observer, PowerDisk, State, World,
};
