//! A mount without a tier: `passthrough BASE MOUNTPOINT`.

use std::sync::Arc;

use thermocline_mount::{Mount, MountConfig, PassThrough};

fn main() {
    let mut args = std::env::args().skip(1);
    let (base, mountpoint) = (args.next().expect("BASE"), args.next().expect("MOUNTPOINT"));
    let config = MountConfig::new(base, mountpoint);
    match Mount::start(config, Arc::new(PassThrough::default())) {
        Ok(mount) => mount.wait().unwrap_or_else(|error| eprintln!("{error}")),
        Err(error) => eprintln!("{error}"),
    }
}
