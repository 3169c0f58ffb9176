//! What the engine is given as a device.

use super::{Failing, Fault, File, FileId, Io, IoKind, Meanwhile, Moment, Refusal, World};
use crate::draw::Draw;
use crate::image::{Image, SECTOR};
use std::io;
use thermocline::clock::Clock;
use thermocline::device::{Device, Witness};

/// The bytes of one file of a world: what the engine is given as a device.
pub struct PowerDisk {
    pub(super) world: World,
    pub(super) file: FileId,
}

impl PowerDisk {
    /// What somebody else does while this request is under way.
    fn meanwhile(&self, request: Moment) -> Option<Meanwhile> {
        let mut state = self.world.state();
        let (_, moment, _) = state.meanwhile.as_mut().filter(|due| due.0 == self.file)?;
        let now = match (&mut *moment, request) {
            (Moment::Write(skip), Moment::Write(_)) if *skip > 0 => {
                *skip -= 1;
                false
            }
            (moment, request) => *moment == request,
        };
        let due = state.meanwhile.take_if(|_| now);
        due.map(|(_, _, act)| act)
    }

    /// Carries out a change, telling the observer before and after.
    fn change(
        &self,
        (kind, offset, length): (IoKind, u64, u64),
        well: impl FnOnce(&mut Image),
        badly: impl FnOnce(&mut Image, &mut Draw, Refusal),
    ) -> io::Result<()> {
        let mut state = self.world.state();
        let file = self.file;
        let io = |done| Io {
            file,
            kind,
            offset,
            length,
            done,
        };
        state.tell(io(false));
        let what = match kind {
            IoKind::Sync => Failing::Syncs,
            _ => Failing::Writes,
        };
        let mut draw = state.draw.clone().unwrap_or_else(|| Draw::new(0));
        let held = state.held;
        let result = match state.ask(file, what) {
            Ok(found) => {
                if found.image.is_awaited() && !held && draw.chance(1, 32) {
                    found.image.arrive(false, &mut draw);
                }
                well(&mut found.image);
                Ok(())
            }
            Err(refusal) => {
                let now = state.clock.wall_ns();
                if let Some(found) = state.files.get_mut(&file) {
                    found.fails(now);
                }
                let found = state.files.get_mut(&file);
                if let Some(found) = found.filter(|_| refusal != Refusal::Gone) {
                    badly(&mut found.image, &mut draw, refusal);
                }
                Err(refusal.error())
            }
        };
        draw.bits();
        state.draw = Some(draw);
        if kind != IoKind::Sync && !state.off {
            state.tick(file);
        }
        state.tell(io(true));
        result
    }
}

impl Device for PowerDisk {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.world.state();
        let asked = state.ask(self.file, Failing::Reads).map(|_| ());
        let now = state.clock.wall_ns();
        let Some(file) = state.files.get_mut(&self.file) else {
            return Err(Refusal::Gone.error());
        };
        if let Err(refusal) = asked {
            file.fails(now);
            return Err(refusal.error());
        }
        let bytes = file.image.current();
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let length = buf.len().min(bytes.len() - from);
        buf[..length].copy_from_slice(&bytes[from..from + length]);
        Ok(length)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        if let Some(act) = self.meanwhile(Moment::Write(0)) {
            act();
        }
        self.change(
            (IoKind::Write, offset, buf.len() as u64),
            |image| image.write(offset, buf),
            |image, draw, refusal| match refusal {
                Refusal::Late => image.write_late(offset, buf),
                _ => image.write_torn(offset, buf, draw),
            },
        )
    }

    fn witness(&self) -> Witness {
        Witness::NOT_NEEDED
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        let meanwhile = self.meanwhile(Moment::Sync);
        let (lies, covered) = {
            let state = self.world.state();
            let file = state.files.get(&self.file);
            let lies = file.is_some_and(|file| file.faults.contains(&Fault::LieOnSync));
            let covered = file
                .filter(|_| meanwhile.is_some())
                .map(|file| file.image.pending());
            (lies, covered)
        };
        meanwhile.into_iter().for_each(|act| act());
        let well = |image: &mut Image| {
            if !lies {
                image.sync(covered.unwrap_or(usize::MAX));
            }
        };
        self.change((IoKind::Sync, 0, 0), well, |image, draw, _| {
            image.fail_sync(draw)
        })?;
        let mut state = self.world.state();
        if let Some(file) = state.files.get_mut(&self.file).filter(|_| !data_only) {
            file.old_times = file.times;
        }
        state.names_are_durable(self.file, data_only);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let state = self.world.state();
        // A length is known without asking the medium: only a dead device does not tell it.
        match state.off || state.files.get(&self.file).is_none_or(File::is_dead) {
            true => Err(Refusal::Gone.error()),
            false => Ok(state.length(self.file)),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change((IoKind::SetLen, 0, len), |i| i.set_len(len), |_, _, _| ())
    }

    fn reserve(&self, offset: u64, len: u64, _ahead: u64) -> io::Result<()> {
        if self.world.state().reserves_nothing {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let end = offset + len;
        let part = |image: &mut Image, draw: &mut Draw, _| {
            let size = SECTOR as u64;
            let sectors = draw.below(end.div_ceil(size) - offset / size + 1);
            if sectors > 0 {
                image.extend(end.min((offset / size + sectors) * size));
            }
        };
        self.change((IoKind::Reserve, offset, len), |i| i.extend(end), part)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let well = |image: &mut Image| image.punch(offset, len);
        self.change((IoKind::Punch, offset, len), well, |_, _, _| ())
    }

    fn late(&self) -> u32 {
        let state = self.world.state();
        let awaited = state.files.get(&self.file);
        u32::from(awaited.is_some_and(|file| file.image.is_awaited()))
    }

    fn label(&self) -> String {
        "simulated disk that loses power".into()
    }
}
