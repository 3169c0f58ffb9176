use std::sync::mpsc::{Receiver, Sender, channel};

use thermocline_core::{HintSet, hint_type};

use super::*;
use crate::record::{Op, Served};

fn record(time_ns: u64) -> TraceRecord {
    TraceRecord {
        time_ns,
        client: 1,
        op: Op::Read,
        served: Served::Flash,
        object: ObjectId(1),
        offset: time_ns * 8192,
        length: 8192,
        latency_ns: 100,
        hints: HintSet::UNKNOWN,
    }
}

/// A sink that says when it is written to and then waits until it is let go.
struct Gate {
    reached: Sender<()>,
    release: Receiver<()>,
    open: bool,
}

impl Write for Gate {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if !self.open {
            self.reached.send(()).ok();
            // The test letting go, or having ended.
            let _ = self.release.recv();
            self.open = true;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn small(queue_records: usize) -> RecorderOptions {
    // One row a group: the first record that reaches the writer makes it write.
    RecorderOptions {
        queue_records,
        row_group_rows: 1,
        ..RecorderOptions::default()
    }
}

#[test]
fn a_stalled_writer_costs_records_but_never_time_or_memory() {
    let (reached, at_gate) = channel();
    let (let_go, release) = channel();
    let mut gate = Some(Gate {
        reached,
        release,
        open: false,
    });
    let open: OpenPart = Box::new(move |_| {
        let sink: Box<dyn Write + Send> = match gate.take() {
            Some(gate) => Box::new(gate),
            None => return Err(io::ErrorKind::AlreadyExists.into()),
        };
        Ok(sink)
    });
    let recorder = Recorder::create_with(Path::new("unused"), small(64), open).unwrap();
    // Enough rows to fill the writer's 64 KiB buffer, so that it stops at the gate.
    let mut sent = 0;
    while at_gate.try_recv().is_err() {
        recorder.record(record(sent));
        sent += 1;
    }
    let before = recorder.dropped();
    // The writer stands still: at most the 64 places of the queue can still take records.
    for _ in 0..10_000 {
        recorder.record(record(sent));
        sent += 1;
    }
    assert!(
        recorder.dropped() >= before + 10_000 - 64,
        "{}",
        recorder.dropped()
    );
    for shard in &recorder.owner.shared.shards {
        let queue = lock(&shard.0);
        assert_eq!(queue.records.capacity(), 8, "a shard never grows");
    }
    let_go.send(()).unwrap();
    let summary = recorder.finish().unwrap();
    assert_eq!(summary.written + summary.dropped, sent);
    assert!(summary.written > 0 && summary.dropped > 0, "{summary:?}");
}

/// A sink that runs full after some bytes.
struct Full {
    room: usize,
}

impl Write for Full {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.room < data.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.room -= data.len();
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_stops_the_recording_and_every_record_is_counted() {
    let open: OpenPart = Box::new(|_| Ok(Box::new(Full { room: 100_000 })));
    let recorder = Recorder::create_with(Path::new("unused"), small(1024), open).unwrap();
    let late = recorder.clone();
    assert!(!recorder.has_failed(), "nothing was written yet");
    let mut sent = 0;
    while recorder.dropped() == 0 {
        recorder.record(record(sent));
        sent += 1;
    }
    while !recorder.has_failed() {
        std::thread::yield_now();
    }
    let dropped = match recorder.finish().unwrap_err() {
        RecordError::Write {
            written: 0,
            dropped,
            ..
        } => dropped,
        other => panic!("{other}"),
    };
    assert_eq!(
        dropped, sent,
        "no part was finished, so all is lost, and said to be"
    );
    late.record(record(0));
    assert_eq!(late.dropped(), sent + 1);
}

#[test]
fn records_after_the_end_are_counted() {
    let open: OpenPart = Box::new(|_| Ok(Box::new(io::sink())));
    let recorder = Recorder::create_with(Path::new("unused"), small(64), open).unwrap();
    let late = recorder.clone();
    recorder.record(record(1));
    let summary = recorder.finish().unwrap();
    assert!(!late.has_failed(), "it was asked to end");
    assert_eq!((summary.written, summary.dropped, summary.parts), (1, 0, 1));
    late.record(record(2));
    assert_eq!(late.dropped(), 1);
    assert_eq!(late.finish().unwrap(), RecorderSummary::default());
}

#[test]
fn many_threads_lose_nothing_uncounted() {
    let open: OpenPart = Box::new(|_| Ok(Box::new(io::sink())));
    let options = RecorderOptions {
        queue_records: 256,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::create_with(Path::new("unused"), options, open).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..20_000).for_each(|time| recorder.record(record(time))));
        }
    });
    let summary = recorder.finish().unwrap();
    assert_eq!(summary.written + summary.dropped, 160_000);
}

#[test]
fn impossible_options_are_refused() {
    let refused = |options: RecorderOptions| {
        let open: OpenPart = Box::new(|_| Ok(Box::new(io::sink())));
        Recorder::create_with(Path::new("unused"), options, open)
            .unwrap_err()
            .to_string()
    };
    let good = RecorderOptions::default;
    assert!(
        refused(RecorderOptions {
            queue_records: 63,
            ..good()
        })
        .contains("queue_records")
    );
    assert!(
        refused(RecorderOptions {
            row_group_rows: 0,
            ..good()
        })
        .contains("row_group_rows")
    );
    assert!(
        refused(RecorderOptions {
            part_rows: 0,
            ..good()
        })
        .contains("part_rows")
    );
    assert!(
        refused(RecorderOptions {
            part_age: Duration::ZERO,
            ..good()
        })
        .contains("part_age")
    );
    assert!(
        refused(RecorderOptions {
            zstd_level: 23,
            ..good()
        })
        .contains("zstd_level")
    );
    let schema = HintSchema::with_custom(["served"]).unwrap();
    assert!(refused(RecorderOptions { schema, ..good() }).contains("\"served\""));
}

#[test]
fn names_of_hint_values_beyond_the_schema_are_ignored() {
    let open: OpenPart = Box::new(|_| Ok(Box::new(io::sink())));
    let recorder = Recorder::create_with(Path::new("unused"), small(64), open).unwrap();
    recorder.name_hint_value(hint_type::FIRST_CUSTOM, 1, "nobody asked");
    recorder.name_hint_value(usize::MAX, 1, "nobody asked");
    assert_eq!(recorder.finish().unwrap().written, 0);
}
