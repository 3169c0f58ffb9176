//! What fuzz targets share.

use std::io::Cursor;

use thermocline_core::ObjectId;
use thermocline_trace::{Format, ImportOptions, Op, open_reader, pages_of};
use twox_hash::XxHash3_64;

/// Most records taken of one input: a few compressed bytes can stand for millions.
const RECORDS_MAX: usize = 20_000;

/// Reads `data` as a trace to its end or to its first error, after which there is nothing.
pub fn read_trace(data: &[u8], format: Option<Format>, columns: Option<&str>) {
    let options = ImportOptions {
        format,
        columns: columns.map(|text| text.parse().expect("a mapping that is right")),
        ..ImportOptions::default()
    };
    let Ok(mut source) = open_reader("fuzz", Cursor::new(data.to_vec()), &options) else {
        return;
    };
    let names = source.schema().names().len();
    let mut failed = false;
    for record in source.by_ref().take(RECORDS_MAX) {
        assert!(!failed, "nothing follows an error");
        let Ok(record) = record else {
            failed = true;
            continue;
        };
        assert!(record.op == Op::Sync || !pages_of(&record, 1).is_empty() || record.length == 0);
        assert!((names..12).all(|position| record.hints.get(position) == 0));
    }
    let catalog = source.catalog();
    let named = |at| catalog.object_name(ObjectId(at)).is_some();
    assert!((0..catalog.objects()).all(named));
}

/// Makes a block a superblock as far as magic, version and checksum go.
pub fn sealed_superblock(block: &mut [u8]) {
    const CHECKSUM_AT: usize = 4088;
    block[..8].copy_from_slice(b"THERMOCL");
    block[8..12].copy_from_slice(&2u32.to_le_bytes());
    let checksum = XxHash3_64::oneshot(&block[..CHECKSUM_AT]);
    block[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
}
