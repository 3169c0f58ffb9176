#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

use thermocline::device::MemoryDevice;
use thermocline::store::{BaseIdentity, Batch, Store, StoreOptions, check};
use thermocline_fuzz::sealed_superblock;

const BLOCK: usize = 4096;

// Two superblocks with right checksums and whatever follows them; the last byte says whether the
// checksums are put right. What was found once is found again.
fuzz_target!(|data: &[u8]| {
    let Some((seal, data)) = data.split_last() else {
        return;
    };
    let mut bytes = data.to_vec();
    bytes.resize(bytes.len().max(16 * BLOCK), 0);
    if seal & 1 == 0 {
        for copy in bytes.chunks_exact_mut(BLOCK).take(2) {
            sealed_superblock(copy);
        }
    }
    let options = StoreOptions {
        page_size: 4096,
        size: None,
        base: BaseIdentity {
            file_system: 0,
            inode: 0,
            path: String::new(),
        },
        format: false,
        deadline: None,
        ..StoreOptions::default()
    };
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let _ = check(&*device, "fuzz", true, &mut |_| {});
    let Ok(mut store) = Store::with_device(device.clone(), "fuzz", &options) else {
        return;
    };
    let found = store.take_recovered().unwrap_or_default();
    let mut page = vec![0; 4096];
    for (block, entry) in &found.entries {
        assert!(block.0 < store.blocks());
        let _ = store.read_block(*block, entry.page, entry.checksum, &mut page);
    }
    if store.mark_open().is_err() || store.commit(&Batch::default()).is_err() {
        return;
    }
    drop(store);
    let mut store = Store::with_device(device, "fuzz", &options).expect("it was just opened");
    let again = store.take_recovered().unwrap_or_default();
    assert_eq!(again.entries, found.entries);
    assert!(again.lost.is_empty());
});
