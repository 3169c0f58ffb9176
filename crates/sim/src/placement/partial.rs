//! Parts of objects: what each further page of flash would save an object, and who gets it.

use super::fixed::Share;
use super::profile::{Accesses, ObjectProfile};
use crate::error::SimError;
use crate::experiment::Progress;
use crate::mrc::{self, Rate};
use crate::workload::Workload;
use thermocline_core::{Costs, ObjectId};

/// What an object saves by the flash it has for itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The object.
    pub object: ObjectId,
    /// Pages and time saved, ns: from (0, 0), pages rising.
    pub points: Vec<(u32, f64)>,
}

/// Miss-time curves of all objects that are read, on a sample of `rate`.
///
/// *Time saved* is reads that hit × the mean of what a read of the object saves; that reads of one
/// object at random and in sequence hit alike is assumed. An object's sizes are shares of its own
/// pages, from 1/64 to all in steps of a factor of √2.
///
/// Cost: one pass over the trace, O(log sampled pages) a sampled request.
///
/// # Errors
/// When a trace that is not in memory cannot be read again.
pub fn curves(
    workload: &Workload,
    profiles: &[ObjectProfile],
    costs: &Costs,
    rate: Rate,
    progress: &Progress,
) -> Result<Vec<Curve>, SimError> {
    let sizes: Vec<Vec<u32>> = profiles.iter().map(|of| sizes(of.pages)).collect();
    let hits = mrc::hits_by_object(workload, &sizes, rate, progress)?;
    let curve = |((profile, sizes), hits): ((&ObjectProfile, &Vec<u32>), Vec<f64>)| {
        let saved = saved_by_read(&profile.accesses, costs);
        let points = sizes
            .iter()
            .zip(hits)
            .map(|(size, hits)| (*size, hits * saved));
        Curve {
            object: profile.object,
            points: std::iter::once((0, 0.0)).chain(points).collect(),
        }
    };
    let rows = profiles.iter().zip(&sizes).zip(hits);
    Ok(rows.map(curve).collect())
}

fn sizes(pages: u64) -> Vec<u32> {
    let share = |step: i32| (pages as f64 * 2f64.powf(f64::from(step) / 2.0)).round() as u32;
    let mut sizes: Vec<u32> = (-12..=0).map(share).filter(|size| *size > 0).collect();
    sizes.dedup();
    sizes
}

/// What a read that hits saves in the mean, ns.
fn saved_by_read(accesses: &Accesses, costs: &Costs) -> f64 {
    match accesses.reads() {
        0 => 0.0,
        reads => accesses.read_ns(costs) / reads as f64 - costs.flash_read,
    }
}

/// The upper concave hull of `points`, which begin at (0, 0): beyond a cliff a curve saves much at
/// once, and the pages up to there are worth taking together or not at all. Points that save no
/// more than those before are left out.
#[must_use]
pub fn hull(points: &[(u32, f64)]) -> Vec<(u32, f64)> {
    let mut hull = vec![(0, 0.0)];
    let slope = |a: (u32, f64), b: (u32, f64)| (b.1 - a.1) / f64::from(b.0 - a.0);
    for &point in points {
        let top = hull[hull.len() - 1];
        if point.0 <= top.0 || point.1 <= top.1 {
            continue;
        }
        while let [.., before, last] = hull[..] {
            if slope(before, last) > slope(last, point) {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

/// Divides `capacity` pages: the step of any object's hull that saves most per page is taken next,
/// as long as it fits. An object of which a step did not fit gets no more.
///
/// Best for the last step taken, where all steps fit; what a step that does not fit leaves empty is
/// lost, as with whole objects.
#[must_use]
pub fn divide(curves: &[Curve], capacity: u64) -> Vec<Share> {
    let mut steps = Vec::new();
    for (at, curve) in curves.iter().enumerate() {
        for step in hull(&curve.points).windows(2) {
            let pages = step[1].0 - step[0].0;
            steps.push((at, pages, (step[1].1 - step[0].1) / f64::from(pages)));
        }
    }
    // Stable: the steps of one object stay in order, as their gains fall.
    steps.sort_by(|a, b| b.2.total_cmp(&a.2));
    let mut given = vec![0u32; curves.len()];
    let mut closed = vec![false; curves.len()];
    let mut left = capacity;
    for (at, pages, _) in steps {
        match left.checked_sub(u64::from(pages)) {
            Some(rest) if !closed[at] => {
                left = rest;
                given[at] += pages;
            }
            _ => closed[at] = true,
        }
    }
    let shares = curves.iter().zip(given).filter(|(_, pages)| *pages > 0);
    let shares: Vec<Share> = shares
        .map(|(curve, pages)| Share {
            object: curve.object,
            pages,
        })
        .collect();
    let all: u64 = shares.iter().map(|share| u64::from(share.pages)).sum();
    assert!(all <= capacity, "what was given away was there");
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hull_bridges_a_cliff() {
        let cliff = [
            (0, 0.0),
            (10, 1.0),
            (20, 2.0),
            (30, 90.0),
            (40, 95.0),
            (50, 95.0),
        ];
        assert_eq!(hull(&cliff), [(0, 0.0), (30, 90.0), (40, 95.0)]);
        assert_eq!(hull(&[(0, 0.0), (5, -1.0)]), [(0, 0.0)]);
    }

    #[test]
    fn flash_goes_where_a_page_saves_most() {
        let curve = |object, points: &[(u32, f64)]| Curve {
            object: ObjectId(object),
            points: points.to_vec(),
        };
        let curves = [
            curve(0, &[(0, 0.0), (10, 100.0), (20, 120.0)]),
            curve(1, &[(0, 0.0), (30, 150.0)]),
        ];
        let pages = |capacity| {
            let shares = divide(&curves, capacity);
            let of = |share: &Share| (share.object.0, share.pages);
            shares.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(pages(40), [(0, 10), (1, 30)]);
        assert_eq!(pages(50), [(0, 20), (1, 30)]);
        // The large step does not fit; the next best does.
        assert_eq!(pages(25), [(0, 20)]);
        assert_eq!(pages(5), []);
    }
}
