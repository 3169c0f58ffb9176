//! Requests as a trace records them.

use crate::engine::{Engine, Request};
use crate::files::clients::POSITION;
use crate::files::object::Object;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;
use thermocline_core::{HintSet, hint_type};
use thermocline_trace::{EXTENT_PAGES, Op, Recorder, Sample, Served, TraceRecord};

impl Engine {
    /// Records requests from now on, those of the recorder's sample, or stops doing so. Requests
    /// that the kernel serves from base itself (files that bypass the tier and are open already)
    /// are not seen.
    pub fn set_recorder(&self, recorder: Option<Recorder>) -> Option<Recorder> {
        // Held to the end: a file that is opened meanwhile names itself to the new recorder.
        let objects = self.objects.read();
        if let Some(recorder) = &recorder {
            self.name_clients(recorder);
            for object in objects.iter().flatten() {
                name_in_trace(recorder, object);
            }
        }
        let bits = recorder.as_ref().map_or(0, |of| of.sample().bits());
        self.recording.store(bits, Ordering::Relaxed);
        let mut slot = self.recorder.write();
        std::mem::replace(&mut slot, recorder)
    }

    pub(crate) fn recorder(&self) -> Option<Recorder> {
        match self.is_recording() {
            true => self.recorder.read().clone(),
            false => None,
        }
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.recording.load(Ordering::Relaxed) != 0
    }

    /// Whether any of a request for these bytes is recorded.
    pub(crate) fn is_recorded(&self, object: &Object, offset: u64, length: u64) -> bool {
        let sample = Sample::from_bits(self.recording.load(Ordering::Relaxed));
        sample.is_some_and(|sample| {
            sample.is_all() || self.parts(sample, object, offset, length).next().is_some()
        })
    }

    /// The parts of a request that are in the sample.
    fn parts(
        &self,
        sample: Sample,
        object: &Object,
        offset: u64,
        length: u64,
    ) -> impl Iterator<Item = Range<u64>> {
        let extent = EXTENT_PAGES * u64::from(self.config.page_size);
        sample.parts(object.id, extent, offset..offset.saturating_add(length))
    }

    /// The request as it is recorded: with the type of its first whole page (`data` is its bytes).
    pub(crate) fn typed<'a>(
        &self,
        request: &Request<'a>,
        object: &Object,
        data: &[u8],
    ) -> Request<'a> {
        let size = self.page_size();
        let skip = (request.offset.next_multiple_of(size as u64) - request.offset) as usize;
        let page = data.get(skip..skip.saturating_add(size));
        Request {
            hints: self.complete(&request.hints, object, page),
            ..*request
        }
    }

    pub(crate) fn record(
        &self,
        request: &Request<'_>,
        object: &Object,
        op: Op,
        length: u64,
        served: Served,
        started: Instant,
    ) {
        let Some(recorder) = self.recorder() else {
            return;
        };
        let whole = TraceRecord {
            time_ns: recorder.time_of(started),
            client: request.client,
            op,
            served,
            object: object.id,
            offset: request.offset,
            length,
            latency_ns: started.elapsed().as_nanos() as u64,
            hints: in_trace(self.complete(&request.hints, object, None)),
        };
        let sample = recorder.sample();
        if sample.is_all() || !matches!(op, Op::Read | Op::Write) {
            return recorder.record(whole);
        }
        for part in self.parts(sample, object, request.offset, length) {
            recorder.record(TraceRecord {
                offset: part.start,
                length: part.end - part.start,
                ..whole
            });
        }
    }

    pub(crate) fn record_quiet(&self, op: Op, object: &Object, offset: u64, length: u64) {
        if !self.is_recording() {
            return;
        }
        let request = Request {
            object,
            offset,
            hints: HintSet::UNKNOWN,
            client: 0,
        };
        let now = Instant::now();
        self.record(&request, object, op, length, Served::Unknown, now);
    }
}

/// Hints as a trace has them: the client is one of them.
fn in_trace(hints: HintSet) -> HintSet {
    match hints.client() {
        0 => hints,
        client => hints.with(POSITION, client),
    }
}

/// Gives a trace the names of an object and of its group.
pub(crate) fn name_in_trace(recorder: &Recorder, object: &Object) {
    let name = object.name.read();
    recorder.name_object(object.id, &name);
    recorder.name_hint_value(hint_type::OBJECT, object.hint, &object.group);
}
