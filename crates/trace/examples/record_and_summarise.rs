//! Records a small made-up trace and prints its summary; a trace that is there already is only
//! summed up:
//! `cargo run -p thermocline-trace --example record_and_summarise -- trace.parquet`

use std::path::{Path, PathBuf};

use thermocline_core::{FileKind, HintSchema, HintSet, ObjectId, RequestType, Role, hint_type};
use thermocline_trace::{
    Op, Recorder, RecorderOptions, Served, TraceReader, TraceRecord, summarise,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path: PathBuf = std::env::args_os().nth(1).ok_or("usage: FILE")?.into();
    if !path.exists() {
        record(&path)?;
    }
    print!(
        "{}",
        summarise(TraceReader::open(&path)?, 10, None)?.table()
    );
    Ok(())
}

fn record(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let schema = HintSchema::with_custom(["plan_node"]).ok_or("too many hint types")?;
    let start_unix_ns = 1_700_000_000_000_000_000;
    let options = RecorderOptions {
        schema,
        start_unix_ns,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::create(path, options)?;
    recorder.name_object(ObjectId(0), "base/5/16384");
    recorder.name_object(ObjectId(1), "base/5/16390");
    recorder.name_hint_value(hint_type::FIRST_CUSTOM, 1, "index scan");
    for number in 0..50_000 {
        recorder.record(made_up(number));
    }
    let summary = recorder.finish()?;
    println!(
        "{} rows written, {} dropped\n",
        summary.written, summary.dropped
    );
    Ok(())
}

/// Request `number` of a workload with a hot and a cold object.
fn made_up(number: u64) -> TraceRecord {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let hit = !mixed.is_multiple_of(5);
    let write = mixed.is_multiple_of(7);
    let hot = mixed % 10 < 8;
    let (role, request) = match write {
        true => (Role::Checkpointer, RequestType::RecoveryWrite),
        false => (Role::Backend, RequestType::Read),
    };
    TraceRecord {
        time_ns: number * 20_000,
        client: 4_000 + (mixed % 8) as u32,
        op: if write { Op::Write } else { Op::Read },
        served: if hit && !write {
            Served::Flash
        } else {
            Served::Base
        },
        object: ObjectId(u32::from(!hot)),
        offset: mixed % if hot { 100 } else { 100_000 } * 8192,
        length: 8192,
        latency_ns: if hit { 90_000 } else { 8_000_000 } + mixed % 10_000,
        hints: HintSet::UNKNOWN
            .with(hint_type::FILE_KIND, FileKind::Relation.value())
            .with(hint_type::REQUEST, request.value())
            .with(hint_type::ROLE, role.value())
            .with(hint_type::FIRST_CUSTOM, u32::from(hot)),
    }
}
