//! The table of TAC (VLDB 2010).

use super::{Parameter, Parameters, Range, Value};
use crate::policy::{TacConfig, TacLabels};

impl Parameters for TacConfig {
    const SECTION: &'static str = "tac";
    const TABLE: &'static [Parameter<Self>] = &[
        Parameter {
            name: "region_pages",
            unit: "pages",
            zero: "",
            range: Range::Integers(8, 64),
            paper: Some(Value::Integer(32)),
            source: "TAC 3.1",
            get: |c| Value::Integer(c.region_pages.into()),
            set: |c, value| c.region_pages = value.small(),
        },
        Parameter {
            name: "regions_per_slot",
            unit: "regions",
            zero: "",
            range: Range::Reals(0.01, 1000.0),
            paper: None,
            source: "TAC 3.3, no bound",
            get: |c| wide(c.regions_per_slot),
            set: |c, value| c.regions_per_slot = value.real() as f32,
        },
        Parameter {
            name: "window",
            unit: "requests",
            zero: "",
            range: Range::Integers(1, 10000),
            paper: Some(Value::Integer(20)),
            source: "TAC 3.1, footnote",
            get: |c| Value::Integer(c.window.into()),
            set: |c, value| c.window = value.small(),
        },
        Parameter {
            name: "sequential_above",
            unit: "requests",
            zero: "",
            range: Range::Integers(0, 10000),
            paper: Some(Value::Integer(2)),
            source: "TAC 3.1",
            get: |c| Value::Integer(c.sequential_above.into()),
            set: |c, value| c.sequential_above = value.small(),
        },
        Parameter {
            name: "ageing_factor",
            unit: "factor",
            zero: "",
            range: Range::Share,
            paper: Some(Value::Real(0.5)),
            source: "TAC 3.1",
            get: |c| wide(c.ageing_factor),
            set: |c, value| c.ageing_factor = value.real() as f32,
        },
        Parameter {
            name: "ageing_requests",
            unit: "requests",
            zero: "8 a slot",
            range: Range::Integers(0, 1 << 40),
            paper: None,
            source: "TAC 3.1, no number",
            get: |c| Value::Integer(c.ageing_requests),
            set: |c, value| c.ageing_requests = value.integer(),
        },
        Parameter {
            name: "margin",
            unit: "share",
            zero: "",
            range: Range::Reals(0.0, 10.0),
            paper: Some(Value::Real(0.01)),
            source: "TAC 3.3",
            get: |c| wide(c.margin),
            set: |c, value| c.margin = value.real() as f32,
        },
        Parameter {
            name: "refreshes",
            unit: "pages",
            zero: "",
            range: Range::Integers(0, 10000),
            paper: Some(Value::Integer(5)),
            source: "TAC 3.3",
            get: |c| Value::Integer(c.refreshes.into()),
            set: |c, value| c.refreshes = value.small(),
        },
        Parameter {
            name: "labels",
            unit: "source",
            zero: "",
            range: Range::Words(&["hint", "window"]),
            paper: Some(Value::Word("window")),
            source: "TAC 3.1",
            get: |c| {
                Value::Word(match c.labels {
                    TacLabels::Hint => "hint",
                    TacLabels::Window => "window",
                })
            },
            set: |c, value| {
                c.labels = match value {
                    Value::Word("window") => TacLabels::Window,
                    _ => TacLabels::Hint,
                }
            },
        },
        Parameter {
            name: "bands",
            unit: "bands",
            zero: "",
            range: Range::Integers(1, 255),
            paper: None,
            source: "TAC 3.3: 50 to 100",
            get: |c| Value::Integer(c.bands.into()),
            set: |c, value| c.bands = value.small(),
        },
        Parameter {
            name: "block_pages",
            unit: "slots",
            zero: "",
            range: Range::Integers(1, 65536),
            paper: None,
            source: "TAC 3.2, no number",
            get: |c| Value::Integer(c.block_pages.into()),
            set: |c, value| c.block_pages = value.small(),
        },
    ];
}

/// The number that a person wrote: 0.01, not the nearest that 32 bits can hold.
fn wide(value: f32) -> Value {
    Value::Real(value.to_string().parse().unwrap_or(f64::NAN))
}
