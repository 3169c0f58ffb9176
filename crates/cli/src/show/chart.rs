//! Axes: a rectangle of the picture that numbers are mapped to.

use std::fmt::Write;

/// A plotting area with linear axes. Pixels count from the top left.
pub(crate) struct Chart {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) x_max: f64,
    pub(crate) y_max: f64,
}

impl Chart {
    pub(crate) fn x(&self, value: f64) -> f64 {
        self.left + self.width * value / self.x_max
    }

    pub(crate) fn y(&self, value: f64) -> f64 {
        self.top + self.height * (1.0 - value / self.y_max)
    }

    /// Grid, ticks and titles of both axes.
    pub(crate) fn axes(
        &self,
        x_title: &str,
        y_title: &str,
        y_label: impl Fn(f64) -> String,
    ) -> String {
        let mut svg = String::new();
        let [x_title, y_title] = [x_title, y_title].map(escape);
        let (right, bottom) = (self.left + self.width, self.top + self.height);
        for value in ticks(self.y_max) {
            let y = self.y(value);
            let label = y_label(value);
            let _ = write!(
                svg,
                "<line class='grid' x1='{:.1}' x2='{right:.1}' y1='{y:.1}' y2='{y:.1}'/>\
                 <text class='tick' x='{:.1}' y='{:.1}' text-anchor='end'>{label}</text>",
                self.left,
                self.left - 8.0,
                y + 4.0
            );
        }
        for value in ticks(self.x_max) {
            let x = self.x(value);
            let _ = write!(
                svg,
                "<line class='mark' x1='{x:.1}' x2='{x:.1}' y1='{bottom:.1}' y2='{:.1}'/>\
                 <text class='tick' x='{x:.1}' y='{:.1}' text-anchor='middle'>{}</text>",
                bottom + 5.0,
                bottom + 19.0,
                thousands(value)
            );
        }
        let _ = write!(
            svg,
            "<line class='mark' x1='{:.1}' x2='{right:.1}' y1='{bottom:.1}' y2='{bottom:.1}'/>\
             <text class='title' x='{:.1}' y='{:.1}' text-anchor='middle'>{x_title}</text>",
            self.left,
            self.left + self.width / 2.0,
            bottom + 40.0
        );
        let (tx, ty) = (self.left - 62.0, self.top + self.height / 2.0);
        let _ = write!(
            svg,
            "<text class='title' transform='translate({tx:.1} {ty:.1}) rotate(-90)' \
             text-anchor='middle'>{y_title}</text>"
        );
        svg
    }
}

/// `text` as HTML and SVG have it, between tags and in attributes.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&#39;")
}

/// The end of an axis that holds values up to `max`: the last tick, so that its label is there.
pub(crate) fn end_of_axis(max: f64) -> f64 {
    let step = step(max);
    // A value that is a tick but for rounding needs no further one.
    (max / step - 1e-9).ceil() * step
}

/// Round values from 0 to `max`, five to ten of them.
fn ticks(max: f64) -> Vec<f64> {
    let step = step(max);
    (0..=(max / step + 1e-9) as u32)
        .map(|i| f64::from(i) * step)
        .collect()
}

/// From one tick to the next.
fn step(max: f64) -> f64 {
    assert!(max > 0.0);
    let rough = max / 6.0;
    let magnitude = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|m| m * magnitude)
        .into_iter()
        .find(|s| *s >= rough);
    step.unwrap_or(10.0 * magnitude)
}

/// A number with its thousands set apart by thin spaces.
pub(crate) fn thousands(value: f64) -> String {
    if value.fract().abs() > 1e-9 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push('\u{2009}');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(7.0), [0.0, 2.0, 4.0, 6.0]);
        assert_eq!(ticks(0.5).len(), 6);
    }

    #[test]
    fn titles_of_axes_are_text() {
        let chart = Chart {
            left: 0.0,
            top: 0.0,
            width: 100.0,
            height: 100.0,
            x_max: 1.0,
            y_max: 1.0,
        };
        let svg = chart.axes("R&D <b>", "it's <i>", |value| value.to_string());
        assert!(svg.contains(">R&amp;D &lt;b&gt;</text>"), "{svg}");
        assert!(svg.contains(">it&#39;s &lt;i&gt;</text>"), "{svg}");
    }

    #[test]
    fn an_axis_ends_with_a_label() {
        for (max, end) in [
            (70.0, 80.0),
            (80.0, 80.0),
            (100.0, 100.0),
            (0.07, 0.08),
            (1.0, 1.0),
        ] {
            assert!(
                (end_of_axis(max) - end).abs() < 1e-9,
                "{max}: {}",
                end_of_axis(max)
            );
            let last = ticks(end_of_axis(max)).last().copied();
            assert!(
                last.is_some_and(|last| (last - end).abs() < 1e-9),
                "{max}: {last:?}"
            );
        }
    }

    #[test]
    fn numbers_map_to_pixels_upside_down() {
        let chart = Chart {
            left: 10.0,
            top: 20.0,
            width: 100.0,
            height: 50.0,
            x_max: 4.0,
            y_max: 2.0,
        };
        assert_eq!((chart.x(0.0), chart.x(4.0)), (10.0, 110.0));
        assert_eq!((chart.y(0.0), chart.y(2.0)), (70.0, 20.0));
        assert_eq!(thousands(12_345.0), "12\u{2009}345");
    }
}
