//! What was measured, beside what is demanded of it: as a table, and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// What a number has to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Demand {
    AtLeast(f64),
    AtMost(f64),
    Exactly(f64),
    /// For comparison alone.
    None,
}

impl Demand {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            // Counts are whole numbers, far below where these lose exactness.
            Self::Exactly(wanted) => (value - wanted).abs() < 0.5,
            Self::None => true,
        }
    }

    fn describe(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {}", number(least)),
            Self::AtMost(most) => format!("<= {}", number(most)),
            Self::Exactly(wanted) => format!("= {}", number(wanted)),
            Self::None => "-".to_owned(),
        }
    }
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Measurement {
    /// What was measured.
    pub(crate) name: String,
    /// The number that the demand is about: a ratio, a count, MiB.
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) demand: Demand,
    /// What the number was made of, in words.
    pub(crate) detail: String,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    measurements: Vec<Measurement>,
    skipped: Vec<String>,
}

impl Report {
    pub(crate) fn add(&mut self, measurement: Measurement) {
        eprintln!("{}: {} {}", measurement.name, number(measurement.value), measurement.unit);
        self.measurements.push(measurement);
    }

    /// A peer that is not installed.
    pub(crate) fn skip(&mut self, what: impl Into<String>) {
        self.skipped.push(what.into());
    }

    pub(crate) fn is_met(&self) -> bool {
        self.measurements.iter().all(|row| row.demand.is_met(row.value))
    }

    pub(crate) fn table(&self) -> String {
        let mut rows = vec![["what", "measured", "demand", "", "of"].map(str::to_owned)];
        rows.extend(self.measurements.iter().map(|row| {
            let verdict = match row.demand {
                Demand::None => "",
                demand if demand.is_met(row.value) => "pass",
                _ => "FAIL",
            };
            let measured = format!("{} {}", number(row.value), row.unit);
            [
                row.name.clone(),
                measured.trim_end().to_owned(),
                row.demand.describe(),
                verdict.to_owned(),
                row.detail.clone(),
            ]
        }));
        let widths: [usize; 5] = std::array::from_fn(|column| {
            rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
        });
        let mut text = String::new();
        for row in rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(widths) {
                let _ = write!(line, "{cell:width$}  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        for skipped in &self.skipped {
            let _ = writeln!(text, "skipped: {skipped}");
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let rows: Vec<_> = self
            .measurements
            .iter()
            .map(|row| {
                let demand = match row.demand {
                    Demand::None => Value::Null,
                    demand => demand.describe().into(),
                };
                json!({
                    "name": row.name,
                    "value": row.value,
                    "unit": row.unit,
                    "demand": demand,
                    "met": row.demand.is_met(row.value),
                    "detail": row.detail,
                })
            })
            .collect();
        json!({"measurements": rows, "skipped": self.skipped, "met": self.is_met()})
    }
}

/// Three digits that count, or all before the point.
pub(crate) fn number(value: f64) -> String {
    if value.fract() == 0.0 || value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else if value >= 0.01 {
        format!("{value:.2}")
    } else {
        format!("{value:.1e}")
    }
}

/// The middle one; that of the upper half where there are two. Zero where there is nothing.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
