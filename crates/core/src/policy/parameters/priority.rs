//! The table of the priority groups (hStorage-DB, VLDB 2012).

use super::{Parameter, Parameters, Range, Value};
use crate::policy::PriorityConfig;

impl Parameters for PriorityConfig {
    const SECTION: &'static str = "priority";
    const TABLE: &'static [Parameter<Self>] = &[
        Parameter {
            name: "priorities",
            unit: "priorities",
            zero: "",
            range: Range::Integers(3, 32),
            paper: None,
            source: "H 3.2, N, no number",
            get: |c| Value::Integer(c.table.priorities().into()),
            set: |c, value| {
                let table = std::mem::take(&mut c.table);
                c.table = table.with_priorities(value.small() as u8);
            },
        },
        Parameter {
            name: "threshold",
            unit: "priority",
            zero: "priorities - 1",
            range: Range::Integers(0, 32),
            paper: Some(Value::Integer(0)),
            source: "H 3.2, t = N - 1",
            get: |c| Value::Integer(c.threshold.into()),
            set: |c, value| c.threshold = value.small() as u8,
        },
        Parameter {
            name: "write_buffer",
            unit: "share",
            zero: "",
            range: Range::Reals(0.0, 1.0),
            paper: Some(Value::Real(0.1)),
            source: "H 4.2.4, b",
            get: |c| Value::Real(c.write_buffer),
            set: |c, value| c.write_buffer = value.real(),
        },
        Parameter {
            name: "allocation",
            unit: "time",
            zero: "",
            range: Range::Words(&["asynchronous", "synchronous"]),
            paper: Some(Value::Word("synchronous")),
            source: "H 5.1, action 2",
            get: |c| {
                Value::Word(match c.synchronous {
                    true => "synchronous",
                    false => "asynchronous",
                })
            },
            set: |c, value| c.synchronous = value == Value::Word("synchronous"),
        },
    ];
}
