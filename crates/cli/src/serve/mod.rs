//! A mount: started, served, asked and told by commands, ended. And caches that no mount has.
//!
//! Two processes are at work. The one that serves lives in `serving`; a command talks to it through
//! the files of `.thermocline/`, which `control` answers and `client` reads, with a deadline
//! (`ask`), and writes.
//!
//! | what                  | the command                | in the process that serves        |
//! |-----------------------|----------------------------|-----------------------------------|
//! | start                 | `mount`, `preflight`       | `daemon`, `serving`, `claiming`   |
//! | its cache, anew too   | `mount`, `reshape`         | `caches`                          |
//! | end                   | `umount`, `flush` (detach) | `ending`, `signals`, `beacon`     |
//! | policy, tier, mode    | `client`                   | `control`                         |
//! | write back            | `flush`                    | `flushing`                        |
//! | another size or cache | `reshape`                  | `reshaping`                       |
//! | files kept on flash   | `pin`, `relations`         | `pins`, `reshaping`               |
//! | a trace               | `record`                   | `recording`                       |
//! | warm after a loss     | `mount`                    | `warming`                         |
//!
//! `follow` is how a command waits for what it started there.
//!
//! Without a mount: `check`, `recover` (`salvage`), `calibrate`. `log` writes the lines of both.

mod ask;
pub(crate) mod beacon;
mod caches;
pub(crate) mod calibrate;
pub(crate) mod check;
mod claiming;
pub(crate) mod client;
mod control;
mod daemon;
mod ending;
pub(crate) mod flush;
mod flushing;
mod follow;
pub(crate) mod log;
pub(crate) mod mount;
pub(crate) mod pin;
mod pins;
mod preflight;
pub(crate) mod record;
mod recording;
pub(crate) mod recover;
mod relations;
pub(crate) mod reshape;
mod reshaping;
mod salvage;
mod serving;
pub(crate) mod signals;
pub(crate) mod umount;
mod warming;
mod watch;
