//! The table of CAC and CC (thesis chapter 6).

use super::{Parameter, Parameters, Range, Value};
use crate::policy::CacConfig;

impl Parameters for CacConfig {
    const SECTION: &'static str = "cac";
    const TABLE: &'static [Parameter<Self>] = &[
        Parameter {
            name: "outqueue_per_page",
            unit: "entries a slot",
            zero: "",
            range: Range::Integers(0, 100),
            paper: Some(Value::Integer(1)),
            source: "thesis 6.5.1",
            get: |c| Value::Integer(c.outqueue_per_page.into()),
            set: |c, value| c.outqueue_per_page = value.small(),
        },
        Parameter {
            name: "rate_requests",
            unit: "requests",
            zero: "a sixteenth of the slots",
            range: Range::Integers(0, 1 << 40),
            paper: None,
            source: "thesis 6.4.2: those of a minute",
            get: |c| Value::Integer(c.rate_requests),
            set: |c, value| c.rate_requests = value.integer(),
        },
        Parameter {
            name: "bands",
            unit: "bands",
            zero: "",
            range: Range::Integers(1, 1 << 20),
            paper: Some(Value::Integer(1000)),
            source: "thesis 6.4.2",
            get: |c| Value::Integer(c.bands.into()),
            set: |c, value| c.bands = value.small(),
        },
        Parameter {
            name: "fade_requests",
            unit: "requests",
            zero: "32 a slot",
            range: Range::Integers(0, u64::MAX),
            paper: Some(Value::Integer(u64::MAX)),
            source: "thesis 6.4.1",
            get: |c| Value::Integer(c.fade_requests),
            set: |c, value| c.fade_requests = value.integer(),
        },
        Parameter {
            name: "writes_expand",
            unit: "yes or no",
            zero: "",
            range: Range::Flag,
            paper: Some(Value::Flag(true)),
            source: "thesis 6.4.1, eq. 6.5 and 6.6",
            get: |c| Value::Flag(c.writes_expand),
            set: |c, value| c.writes_expand = value.flag(),
        },
    ];
}
