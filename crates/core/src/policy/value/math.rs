//! Logarithms and powers that are the same on every machine: integers, and sums and products of
//! floats, no library's functions.

/// log₂(`x` + 1) rounded down: 0 for 0, at most 32.
#[must_use]
pub(super) const fn log2(x: u32) -> u32 {
    match x.checked_add(1) {
        Some(x) => x.ilog2(),
        None => 32,
    }
}

/// 2 log₂(`x` + 1) rounded down: 0 for 0, at most 64.
#[must_use]
pub(super) const fn half_log2(x: u32) -> u32 {
    /// √2 with 31 bits after the point.
    const ROOT: u32 = 0xB504_F334;
    match x.checked_add(1) {
        Some(x) => 2 * x.ilog2() + (x << x.leading_zeros() >= ROOT) as u32,
        None => 64,
    }
}

/// 2 to the power of `x`, to 2 parts in a million; `x` is held between -100 and 100.
#[must_use]
pub(super) fn exp2(x: f32) -> f32 {
    /// (ln 2)^k / k! for k from 5 down to 0.
    const SERIES: [f32; 6] = [
        0.001_333_356,
        0.009_618_129,
        0.055_504_11,
        0.240_226_5,
        std::f32::consts::LN_2,
        1.0,
    ];
    /// 1.5 × 2²³: what is added to it is rounded to a whole number, its last bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-100.0, 100.0);
    let rounded = x + ROUND;
    let part = x - (rounded - ROUND);
    let power = SERIES.into_iter().fold(0.0, |sum, term| sum * part + term);
    let whole = rounded.to_bits().wrapping_sub(ROUND.to_bits());
    power * f32::from_bits(whole.wrapping_add(127) << 23)
}

/// e to the power of `x`; see [`exp2`].
#[must_use]
pub(super) fn exp(x: f32) -> f32 {
    exp2(x * std::f32::consts::LOG2_E)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_those_of_the_library() {
        let edges = (0..32).flat_map(|bit| [(1u32 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for x in (0..10_000).chain(edges).chain([u32::MAX - 1, u32::MAX]) {
            let exact = (f64::from(x) + 1.0).log2();
            assert_eq!(log2(x), exact.floor() as u32, "{x}");
            assert_eq!(half_log2(x), (2.0 * exact).floor() as u32, "{x}");
        }
    }

    #[test]
    fn powers_are_those_of_the_library() {
        for step in -9_900..9_900 {
            let x = step as f32 / 100.0;
            let (exact, found) = (f64::from(x).exp2(), f64::from(exp2(x)));
            assert!((found / exact - 1.0).abs() < 1e-5, "{x} {found} {exact}");
        }
        assert_eq!(exp2(-1e9), exp2(-100.0), "never 0");
        assert!((exp(-1.0) - 0.367_879).abs() < 1e-5);
    }
}
