//! How far the pages of each object reach: a trim to the end of an object has nothing to forget
//! beyond them, so it costs by what its object has and not by what the whole trace has.

use crate::request::PageRequest;
use std::collections::HashMap;
use thermocline_core::PageId;

/// The last page of each object that has pages. *Memory*: about 30 bytes an object.
#[derive(Debug, Default)]
pub(crate) struct Reach(HashMap<u32, u64>);

impl Reach {
    /// `page` is there from now on.
    pub(crate) fn extend(&mut self, page: PageId) {
        let last = self.0.entry(page.object.0).or_insert(page.index);
        *last = page.index.max(*last);
    }

    /// The first and the last page of `trim` that may be there; none where none is. They are gone
    /// from now on.
    pub(crate) fn cut(&mut self, trim: &PageRequest) -> Option<(u64, u64)> {
        let (object, first) = (trim.object.0, trim.index);
        let last = *self.0.get(&object)?;
        if first > last {
            return None;
        }
        if trim.trim_last() < last {
            return Some((first, trim.trim_last()));
        }
        match first.checked_sub(1) {
            Some(before) => self.0.insert(object, before),
            None => self.0.remove(&object),
        };
        Some((first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Kind, PAGES_MAX};
    use thermocline_core::ObjectId;

    #[test]
    fn a_trim_ends_with_its_object() {
        let mut reach = Reach::default();
        let page = |index| PageId::new(ObjectId(4), index);
        let trim = |index, pages| PageRequest::new(page(index), Kind::Trim, 0, 0, pages);
        assert_eq!(reach.cut(&trim(0, 5)), None);
        [7, 3]
            .into_iter()
            .for_each(|index| reach.extend(page(index)));
        assert_eq!(reach.cut(&trim(2, 3)), Some((2, 4)));
        assert_eq!(reach.cut(&trim(8, PAGES_MAX)), None);
        assert_eq!(reach.cut(&trim(5, PAGES_MAX)), Some((5, 7)));
        assert_eq!(reach.cut(&trim(5, 1)), None);
        assert_eq!(reach.cut(&trim(0, 9)), Some((0, 4)));
        assert_eq!(reach.cut(&trim(0, PAGES_MAX)), None);
        reach.extend(page(u64::MAX));
        assert_eq!(
            reach.cut(&trim(u64::MAX, PAGES_MAX)),
            Some((u64::MAX, u64::MAX))
        );
        reach.extend(page(1));
        assert_eq!(reach.cut(&trim(1, 2)), Some((1, 2)));
    }
}
