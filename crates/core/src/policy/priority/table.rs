//! The policy assignment table: hints to priorities (hStorage-DB §2, §4).

use crate::hint::{FileKind, HINT_TYPES_MAX, HintSet, PageType, PlanAccess, PlanLevel};
use crate::hint::{RequestType, Role, hint_type};

/// That a hint has one of some values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    position: usize,
    /// Bit v: value v will do.
    values: u32,
}

impl Condition {
    /// That the hint type at `position` has one of `values`, each below 32.
    #[must_use]
    pub fn new(position: usize, values: impl IntoIterator<Item = u32>) -> Self {
        assert!(position < HINT_TYPES_MAX, "hint types have positions");
        let bits = values.into_iter().map(|value| {
            assert!(value < 32, "values of built-in hint types are small");
            1u32 << value
        });
        Self {
            position,
            values: bits.fold(0, |all, bit| all | bit),
        }
    }

    fn holds(&self, hints: &HintSet) -> bool {
        let value = hints.get(self.position);
        value < 32 && self.values & (1 << value) != 0
    }
}

/// One rule: a request that meets every condition has the priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityRule {
    /// All of these must hold; where there are none, every request matches.
    pub conditions: Vec<Condition>,
    /// From 1 to N.
    pub priority: u8,
}

/// A built-in table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BuiltIn {
    /// What the three below have in common.
    #[default]
    General,
    /// PostgreSQL.
    Postgres,
    /// MariaDB and MySQL with InnoDB.
    MariaDb,
    /// SQLite.
    Sqlite,
}

impl BuiltIn {
    /// Every table.
    pub const ALL: [Self; 4] = [Self::General, Self::Postgres, Self::MariaDb, Self::Sqlite];

    /// Name used in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::Postgres => "postgres",
            Self::MariaDb => "mariadb",
            Self::Sqlite => "sqlite",
        }
    }

    /// The table with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }
}

/// Rules in order, of which the first that matches gives the priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// N.
    priorities: u8,
    rules: Vec<PriorityRule>,
    /// Where no rule matches.
    default: u8,
    /// The table that the last rules are, and how many they are.
    table: Option<(BuiltIn, usize)>,
}

impl Default for Assignment {
    /// The general table with 8 priorities.
    fn default() -> Self {
        Self::built_in(BuiltIn::General, 8)
    }
}

impl Assignment {
    /// A table of `priorities` (N, at least 3), with `default` (from 1 to N) where no rule
    /// matches.
    #[must_use]
    pub fn new(priorities: u8, rules: Vec<PriorityRule>, default: u8) -> Self {
        assert!(
            priorities >= 3,
            "one priority that caches and two that do not"
        );
        let given = rules.iter().map(|rule| rule.priority).chain([default]);
        for priority in given {
            assert!((1..=priorities).contains(&priority), "from 1 to N");
        }
        Self {
            priorities,
            rules,
            default,
            table: None,
        }
    }

    /// The built-in `table` with `priorities` (N, at least 3). With N = 8:
    ///
    /// | requests | priority |
    /// |---|---|
    /// | temporary files | 1 (rule 3) |
    /// | logs; checkpoint writes; what a plan reads in order | 7 = N − 1 (rule 1) |
    /// | reads that a plan makes at random | 2 … 6 = N − 2 by level (rule 2) |
    /// | other sequential reads | 7 |
    /// | updates of pages that stay in the database's buffer (below) | 7 |
    /// | B-tree inner and meta pages | 2 |
    /// | B-tree leaves, other indexes | 3 |
    /// | catalogs, maps, sequences, system pages | 4 |
    /// | everything else: heap, undo, overflow, what is not known | 5 |
    ///
    /// Priority 6 is free for rules of one's own. With a smaller N what would be above N − 2 is
    /// N − 2.
    ///
    /// *Random requests* whose place in a query plan is known ([`PlanLevel`]): rule 2, with the
    /// range n1 = 2, n2 = N − 2; what a plan reads from beginning to end has N − 1 (rule 1).
    /// Without a plan what a file system can see is the kind of page, and the order is that of how
    /// often a page is wanted again: an inner page leads to a hundred leaves, a leaf to a hundred
    /// rows.
    ///
    /// *Updates*: rule 4 needs a write buffer (see [`super`]). A page written because it leaves
    /// the database's buffer (replacement and synchronous writes) will be read from here when it
    /// is wanted again, so it has the priority of its kind. A page written at a checkpoint stays
    /// where it is and has N − 1: what is on flash is kept up to date, and nothing else happens.
    /// A write of which nothing more is known is taken for the former by `general` and `sqlite`,
    /// whose buffer is small, and for the latter by `mariadb`, whose page cleaner mostly writes
    /// for checkpoints.
    ///
    /// *Maintenance* (`postgres`): VACUUM, CREATE INDEX and COPY read every page once: N − 1.
    #[must_use]
    pub fn built_in(table: BuiltIn, priorities: u8) -> Self {
        assert!(
            priorities >= 3,
            "one priority that caches and two that do not"
        );
        let caching = |priority: u8| priority.min(priorities - 2);
        let never = priorities - 1;
        let mut rules = vec![
            by_kind(&[FileKind::Temporary], 1),
            by_kind(&[FileKind::Log], never),
            by_request(&[RequestType::RecoveryWrite], never),
            by_access(PlanAccess::Sequential, never),
        ];
        let levels = PlanLevel::ALL.iter().skip(1).zip(2u8..);
        rules.extend(levels.map(|(level, priority)| by_level(*level, caching(priority))));
        rules.push(by_request(&[RequestType::SequentialRead], never));
        match table {
            BuiltIn::General | BuiltIn::Sqlite => {}
            BuiltIn::Postgres => rules.push(by_role(&[Role::Maintenance, Role::Autovacuum], never)),
            BuiltIn::MariaDb => rules.push(by_request(&[RequestType::Write], never)),
        }
        rules.extend([
            by_page(&[PageType::BtreeInner, PageType::BtreeMeta], caching(2)),
            by_page(&[PageType::BtreeLeaf, PageType::OtherIndex], caching(3)),
            by_kind(&[FileKind::Index], caching(3)),
            by_kind(&[FileKind::Catalog, FileKind::Map], caching(4)),
            by_page(
                &[PageType::Map, PageType::Sequence, PageType::System],
                caching(4),
            ),
        ]);
        let table = Some((table, rules.len()));
        Self {
            table,
            ..Self::new(priorities, rules, caching(5))
        }
    }

    /// The same table with `rules` before its own.
    #[must_use]
    pub fn preceded_by(self, mut rules: Vec<PriorityRule>) -> Self {
        rules.extend(self.rules);
        let table = self.table;
        Self {
            table,
            ..Self::new(self.priorities, rules, self.default)
        }
    }

    /// The same table with `default`, from 1 to N, where no rule matches.
    #[must_use]
    pub fn with_default(self, default: u8) -> Self {
        let table = self.table;
        Self {
            table,
            ..Self::new(self.priorities, self.rules, default)
        }
    }

    /// N, the number of priorities.
    #[must_use]
    pub fn priorities(&self) -> u8 {
        self.priorities
    }

    /// The same table with `priorities` (N, at least 3): the built-in one for so many, and of the
    /// rules before it the last two priorities stay the last two, and the others keep their
    /// numbers, N − 2 at most.
    #[must_use]
    pub fn with_priorities(mut self, priorities: u8) -> Self {
        let (before, most) = (self.priorities, priorities.saturating_sub(2));
        let fit = |priority: u8| match before - priority {
            0 => priorities,
            1 => priorities - 1,
            _ => priority.min(most),
        };
        let fitted = |rule: PriorityRule| PriorityRule {
            priority: fit(rule.priority),
            ..rule
        };
        let (table, own) = match self.table {
            Some((table, count)) => {
                let own = self.rules.len().saturating_sub(count);
                (Self::built_in(table, priorities), own)
            }
            None => (Self::new(priorities, Vec::new(), 1), self.rules.len()),
        };
        self.rules.truncate(own);
        let rules = self.rules.into_iter().map(fitted).collect();
        table.preceded_by(rules).with_default(fit(self.default))
    }

    /// Priority of a request with `hints`. O(rules).
    #[must_use]
    pub fn priority(&self, hints: &HintSet) -> u8 {
        let mut rules = self.rules.iter();
        let matches = |rule: &&PriorityRule| rule.conditions.iter().all(|c| c.holds(hints));
        rules
            .find(matches)
            .map_or(self.default, |rule| rule.priority)
    }
}

fn rule(position: usize, values: impl IntoIterator<Item = u32>, priority: u8) -> PriorityRule {
    PriorityRule {
        conditions: vec![Condition::new(position, values)],
        priority,
    }
}

fn by_kind(kinds: &[FileKind], priority: u8) -> PriorityRule {
    rule(
        hint_type::FILE_KIND,
        kinds.iter().map(|v| v.value()),
        priority,
    )
}

fn by_request(requests: &[RequestType], priority: u8) -> PriorityRule {
    rule(
        hint_type::REQUEST,
        requests.iter().map(|v| v.value()),
        priority,
    )
}

fn by_access(access: PlanAccess, priority: u8) -> PriorityRule {
    rule(hint_type::PLAN_ACCESS, [access.value()], priority)
}

fn by_level(level: PlanLevel, priority: u8) -> PriorityRule {
    rule(hint_type::PLAN_LEVEL, [level.value()], priority)
}

fn by_page(pages: &[PageType], priority: u8) -> PriorityRule {
    rule(
        hint_type::PAGE_TYPE,
        pages.iter().map(|v| v.value()),
        priority,
    )
}

fn by_role(roles: &[Role], priority: u8) -> PriorityRule {
    rule(hint_type::ROLE, roles.iter().map(|v| v.value()), priority)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(kind: FileKind, request: RequestType, page: PageType, role: Role) -> HintSet {
        HintSet::UNKNOWN
            .with(hint_type::FILE_KIND, kind.value())
            .with(hint_type::REQUEST, request.value())
            .with(hint_type::PAGE_TYPE, page.value())
            .with(hint_type::ROLE, role.value())
    }

    /// Table 1 of the paper, and what is said at `built_in`.
    #[test]
    fn built_in_tables() {
        use FileKind::{Catalog, Log, Relation, Temporary};
        use PageType::{BtreeInner, BtreeLeaf, Heap};
        use RequestType::{Read, RecoveryWrite, ReplacementWrite, SequentialRead, Write};
        let backend = Role::Backend;
        let cases = [
            (
                hints(Temporary, SequentialRead, Heap, backend),
                [1, 1, 1, 1],
            ),
            (hints(Temporary, Write, Heap, backend), [1, 1, 1, 1]),
            (hints(Log, Write, Heap, backend), [7, 7, 7, 7]),
            (
                hints(Relation, SequentialRead, BtreeInner, backend),
                [7, 7, 7, 7],
            ),
            (hints(Relation, Read, BtreeInner, backend), [2, 2, 2, 2]),
            (hints(Relation, Read, BtreeLeaf, backend), [3, 3, 3, 3]),
            (hints(Catalog, Read, Heap, backend), [4, 4, 4, 4]),
            (hints(Relation, Read, Heap, backend), [5, 5, 5, 5]),
            (
                hints(Relation, ReplacementWrite, BtreeLeaf, backend),
                [3, 3, 3, 3],
            ),
            (
                hints(Relation, RecoveryWrite, BtreeLeaf, backend),
                [7, 7, 7, 7],
            ),
            (hints(Relation, Write, Heap, backend), [5, 5, 7, 5]),
            (hints(Relation, Read, Heap, Role::Autovacuum), [5, 7, 5, 5]),
            (HintSet::UNKNOWN, [5, 5, 5, 5]),
        ];
        for (hints, expected) in cases {
            let found = BuiltIn::ALL.map(|t| Assignment::built_in(t, 8).priority(&hints));
            assert_eq!(found, expected, "{hints:?}");
        }
    }

    /// Rules 1 and 2 by the plan, and what comes before and after them.
    #[test]
    fn a_plan_says_more_than_a_page() {
        use FileKind::{Relation, Temporary};
        use PageType::{BtreeInner, Heap};
        use RequestType::{Read, SequentialRead};
        let random = |steps: u8| {
            hints(Relation, SequentialRead, Heap, Role::Backend)
                .with(hint_type::PLAN_ACCESS, PlanAccess::Random.value())
                .with(hint_type::PLAN_LEVEL, PlanLevel::of_steps(steps).value())
        };
        let scan = hints(Relation, Read, BtreeInner, Role::Backend)
            .with(hint_type::PLAN_ACCESS, PlanAccess::Sequential.value());
        let temporary = scan.with(hint_type::FILE_KIND, Temporary.value());
        for built_in in BuiltIn::ALL {
            let table = Assignment::built_in(built_in, 8);
            let found = [0, 1, 3, 4, 5, 200].map(|steps| table.priority(&random(steps)));
            assert_eq!(found, [2, 3, 5, 6, 6, 6]);
            assert_eq!(table.priority(&scan), 7);
            assert_eq!(table.priority(&temporary), 1);
        }
    }

    #[test]
    fn a_table_fits_any_number_of_priorities() {
        for table in BuiltIn::ALL {
            assert_eq!(BuiltIn::from_name(table.name()), Some(table));
            for priorities in 3..=20 {
                let table = Assignment::built_in(table, priorities);
                let heap = table.priority(&HintSet::UNKNOWN);
                assert!(heap < priorities - 1 && heap <= 5);
                let general = Assignment::built_in(BuiltIn::General, 8);
                let fitted = general.with_priorities(priorities);
                assert_eq!(fitted, Assignment::built_in(BuiltIn::General, priorities));
            }
        }
    }

    #[test]
    fn the_first_rule_that_matches_wins() {
        let read = RequestType::Read.value();
        let both = PriorityRule {
            conditions: vec![
                Condition::new(hint_type::REQUEST, [read]),
                Condition::new(hint_type::ROLE, [1, 2]),
            ],
            priority: 6,
        };
        let every = PriorityRule {
            conditions: Vec::new(),
            priority: 8,
        };
        let table = Assignment::default().preceded_by(vec![both, every]);
        let hints = HintSet::UNKNOWN.with(hint_type::REQUEST, read);
        assert_eq!(table.priority(&hints.with(hint_type::ROLE, 2)), 6);
        assert_eq!(table.priority(&hints.with(hint_type::ROLE, 3)), 8);
        assert_eq!(table.priority(&hints), 8, "all conditions must hold");
        let huge = hints.with(hint_type::ROLE, u32::MAX);
        assert_eq!(
            table.priority(&huge),
            8,
            "a value out of range matches nothing"
        );
    }
}
