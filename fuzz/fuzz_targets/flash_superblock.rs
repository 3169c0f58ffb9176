#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

use thermocline::device::MemoryDevice;
use thermocline::{BaseIdentity, FlashOptions, FlashStore};
use thermocline_fuzz::sealed_superblock;

const BLOCK: usize = 4096;

// Two superblocks with right checksums and whatever follows them; the last byte says whether the
// checksums are put right.
fuzz_target!(|data: &[u8]| {
    let Some((seal, data)) = data.split_last() else {
        return;
    };
    let mut bytes = data.to_vec();
    bytes.resize(bytes.len().max(4 * BLOCK), 0);
    if seal & 1 == 0 {
        for copy in bytes.chunks_exact_mut(BLOCK).take(2) {
            sealed_superblock(copy);
        }
    }
    let options = FlashOptions {
        page_size: 4096,
        size: None,
        base: BaseIdentity {
            file_system: 0,
            inode: 0,
            path: String::new(),
        },
        format: false,
        deadline: None,
    };
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    if let Ok(mut store) = FlashStore::with_device(device, "fuzz", &options) {
        let saved = store.take_saved().unwrap_or_default();
        for entry in &saved.entries {
            assert!(entry.slot.0 < store.slots());
        }
        let mut page = vec![0; 4096];
        for entry in saved.entries.iter().take(8) {
            let _ = store.read_slot(entry.slot, entry.page, entry.checksum, &mut page);
        }
        let _ = store.mark_open();
        let _ = store.save(saved);
    }
});
