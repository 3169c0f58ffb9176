//! The smallest program that mounts: `mount BASE MOUNTPOINT [CACHE SIZE_MIB]`.

use std::path::Path;

use thermocline::{BaseIdentity, Engine, EngineConfig, Store, StoreOptions};
use thermocline_mount::{Mount, MountConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [base, mountpoint, rest @ ..] = args.as_slice() else {
        return Err("usage: mount BASE MOUNTPOINT [CACHE SIZE_MIB]".into());
    };
    let config = EngineConfig::default();
    let flash = match rest {
        [cache, size, ..] => Some(Store::open(
            Path::new(cache),
            &StoreOptions {
                page_size: config.page_size,
                size: Some(size.parse::<u64>()? << 20),
                base: BaseIdentity {
                    file_system: 0,
                    inode: 0,
                    path: base.clone(),
                    ..BaseIdentity::default()
                },
                format: true,
                deadline: None,
                ..StoreOptions::default()
            },
        )?),
        _ => None,
    };
    let engine = Engine::start(config, flash)?;
    let mount = Mount::start(MountConfig::new(base, mountpoint), engine.clone())?;
    mount.wait()?;
    engine.stop()?;
    Ok(())
}
