//! The table of CLIC, DP-CLIC and their variants (thesis chapters 3 to 5).

use super::{Parameter, Parameters, Range, Value};
use crate::policy::{ClicConfig, Ties};

impl Parameters for ClicConfig {
    const SECTION: &'static str = "clic";
    const TABLE: &'static [Parameter<Self>] = &[
        Parameter {
            name: "window",
            unit: "requests",
            zero: "2 a slot, 1000 to 10^6",
            range: Range::Integers(0, 1 << 40),
            paper: Some(Value::Integer(1000000)),
            source: "thesis 3.2.3",
            get: |c| Value::Integer(c.window),
            set: |c, value| c.window = value.integer(),
        },
        Parameter {
            name: "smoothing",
            unit: "weight",
            zero: "",
            range: Range::Share,
            paper: Some(Value::Real(1.0)),
            source: "thesis 3.2.3, r",
            get: |c| Value::Real(c.r),
            set: |c, value| c.r = value.real(),
        },
        Parameter {
            name: "outqueue_per_page",
            unit: "entries a slot",
            zero: "",
            range: Range::Integers(0, 100),
            paper: Some(Value::Integer(5)),
            source: "thesis 3.4.1",
            get: |c| Value::Integer(c.outqueue_per_page.into()),
            set: |c, value| c.outqueue_per_page = value.small(),
        },
        Parameter {
            name: "sets_max",
            unit: "hint sets",
            zero: "",
            range: Range::Integers(1, 1 << 20),
            paper: None,
            source: "no bound in the thesis",
            get: |c| Value::Integer(c.sets_max.into()),
            set: |c, value| c.sets_max = value.small(),
        },
        Parameter {
            name: "k",
            unit: "hint sets",
            zero: "",
            range: Range::Integers(1, 1 << 20),
            paper: Some(Value::Integer(100)),
            source: "thesis 3.4.4",
            get: |c| Value::Integer(c.k.into()),
            set: |c, value| c.k = value.small(),
        },
        Parameter {
            name: "types",
            unit: "hint types",
            zero: "",
            range: Range::Integers(1, 1 << 20),
            paper: Some(Value::Integer(3)),
            source: "thesis 5.3",
            get: |c| Value::Integer(c.types.into()),
            set: |c, value| c.types = value.small(),
        },
        Parameter {
            name: "buckets",
            unit: "buckets",
            zero: "",
            range: Range::Integers(1, 1 << 20),
            paper: Some(Value::Integer(3000)),
            source: "thesis 4.6",
            get: |c| Value::Integer(c.buckets.into()),
            set: |c, value| c.buckets = value.small(),
        },
        Parameter {
            name: "bucket_width",
            unit: "requests",
            zero: "a sixteenth of the slots",
            range: Range::Integers(0, 1 << 40),
            paper: Some(Value::Integer(5000)),
            source: "thesis 4.6",
            get: |c| Value::Integer(c.bucket_width),
            set: |c, value| c.bucket_width = value.integer(),
        },
        Parameter {
            name: "evidence",
            unit: "reads",
            zero: "the curve alone",
            range: Range::Integers(0, 1 << 30),
            paper: Some(Value::Integer(0)),
            source: "thesis 4.4: the curve alone",
            get: |c| Value::Integer(c.evidence.into()),
            set: |c, value| c.evidence = value.small(),
        },
        Parameter {
            name: "ties",
            unit: "rule",
            zero: "",
            range: Range::Words(&["refuse", "informed", "admit", "overdue"]),
            paper: Some(Value::Word("refuse")),
            source: "thesis figure 3.7, line 12",
            get: |c| {
                Value::Word(match c.ties {
                    Ties::Refuse => "refuse",
                    Ties::Informed => "informed",
                    Ties::Admit => "admit",
                    Ties::Overdue => "overdue",
                })
            },
            set: |c, value| {
                c.ties = match value {
                    Value::Word("refuse") => Ties::Refuse,
                    Value::Word("informed") => Ties::Informed,
                    Value::Word("admit") => Ties::Admit,
                    _ => Ties::Overdue,
                }
            },
        },
    ];
}
