//! What operations make of rows: the default merge engine, which keeps the last row (table-model §7.2, 7.3).

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::row::{ChangeType, Datum, Row, Schema, compacted};

/// What a delete does (`table.delete.behavior`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteBehavior {
    /// It deletes.
    Allow,
    /// Nothing.
    Ignore,
    /// It refuses its batch.
    Disable,
}

/// The rules of a PK table.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Its schema.
    pub schema: Schema,
    /// Places of the physical primary key: without the partition columns.
    pub key: Vec<usize>,
    /// Whether the changelog holds new rows only (`table.changelog.image` = `wal`).
    pub wal_image: bool,
    /// What a delete does.
    pub deletes: DeleteBehavior,
}

/// One operation on a key.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// As wide as the schema, or as an earlier version of it: what it lacks is NULL then (table-model §16). Of a
    /// delete, and outside `target`, only the key counts.
    pub row: Row,
    /// Whether it deletes.
    pub delete: bool,
    /// The columns that it is about; `None` is all of them (table-model §7.3).
    pub target: Option<Arc<[usize]>>,
}

impl Op {
    /// A row that takes the place of its key's.
    #[must_use]
    pub fn upsert(row: Row) -> Self {
        Self { row, delete: false, target: None }
    }

    /// The end of a key's row.
    #[must_use]
    pub fn delete(row: Row) -> Self {
        Self { row, delete: true, target: None }
    }
}

impl Rules {
    /// Whether an operation needs to know the row that is there.
    pub(super) fn reads_old(&self, op: &Op) -> bool {
        let partial = self.partial(op).is_some();
        if op.delete { self.deletes == DeleteBehavior::Allow } else { !self.wal_image || partial }
    }

    /// The columns of a partial operation: one that names them all is none, unless they are the key's.
    fn partial<'a>(&self, op: &'a Op) -> Option<&'a [usize]> {
        let (columns, key) = (self.schema.columns.len(), self.schema.primary_key.len());
        op.target.as_deref().filter(|target| target.len() < columns || target.len() == key)
    }

    /// Checks a list of target columns: it has the key, and every other column of the table takes NULL.
    ///
    /// # Errors
    /// `InvalidArgument` that names the column.
    pub fn check_target(&self, target: &[usize]) -> Result<()> {
        let name = |at: usize| self.schema.columns.get(at).map_or("?", |column| column.name.as_str());
        if let Some(missing) = self.schema.primary_key.iter().find(|at| !target.contains(at)) {
            let what = format!("a partial update must name the primary key's column '{}'", name(*missing));
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        if target.len() >= self.schema.columns.len() {
            return Ok(());
        }
        let not_null = self
            .schema
            .columns
            .iter()
            .enumerate()
            .find(|(at, column)| !column.nullable && !self.schema.primary_key.contains(at));
        match not_null {
            None => Ok(()),
            Some((_, column)) => {
                let what =
                    format!("a partial update needs every other column to take NULL, '{}' does not", column.name);
                Err(Error::new(ErrorKind::InvalidArgument, what))
            }
        }
    }

    /// A row as wide as the schema; one of a width that no version has is left as it is, and refused where it is encoded.
    fn full(&self, row: &Row) -> Row {
        let mut row = row.clone();
        if self.schema.is_width(row.len()) {
            row.resize(self.schema.columns.len(), Datum::Null);
        }
        row
    }

    /// The row that a partial upsert makes of the one that is there.
    fn merge(&self, target: &[usize], old: Option<&Row>, new: &Row) -> Row {
        let mut row = old.cloned().unwrap_or_else(|| vec![Datum::Null; self.schema.columns.len()]);
        for at in target {
            if let (Some(slot), Some(value)) = (row.get_mut(*at), new.get(*at)) {
                slot.clone_from(value);
            }
        }
        row
    }

    /// What a partial delete leaves: `None` where every column outside the target is NULL already.
    fn partial_delete(&self, target: &[usize], old: &Row) -> Option<Row> {
        let rest = old.iter().enumerate().any(|(at, value)| !target.contains(&at) && *value != Datum::Null);
        rest.then(|| {
            let gone = |at: &usize| target.contains(at) && !self.schema.primary_key.contains(at);
            let keep = |(at, value): (usize, &Datum)| if gone(&at) { Datum::Null } else { value.clone() };
            old.iter().enumerate().map(keep).collect()
        })
    }
}

/// What a batch leaves of a key.
pub(super) struct Effect {
    /// The row in the store's encoding, or none.
    pub(super) row: Option<Arc<[u8]>>,
    /// The place of the change that made it so.
    pub(super) change: usize,
}

/// What operations come to.
#[derive(Default)]
pub(super) struct Merged {
    /// The changelog, in order.
    pub(super) changes: Vec<(ChangeType, Row)>,
    /// By key, in the order in which they were first changed.
    pub(super) effects: Vec<(Arc<[u8]>, Effect)>,
    /// How many more rows there are.
    pub(super) live_rows: i64,
}

fn encoded(rules: &Rules, row: &Row) -> Result<Arc<[u8]>> {
    let mut bytes = Vec::new();
    compacted::write_row(&rules.schema, row, &mut bytes)?;
    Ok(bytes.into())
}

type Olds = HashMap<Arc<[u8]>, Option<Row>>;

impl Merged {
    /// Runs operations over the rows that are there; later ones see earlier ones.
    ///
    /// # Errors
    /// `DeletesDisabled`; `InvalidArgument` for a value that does not fit its column.
    pub(super) fn new(rules: &Rules, mut olds: Olds, ops: &[Op], keys: &[Arc<[u8]>]) -> Result<Self> {
        let mut merged = Self::default();
        let mut places: HashMap<Arc<[u8]>, usize> = HashMap::new();
        for (at, (op, key)) in ops.iter().zip(keys).enumerate() {
            let before = merged.changes.len();
            let now = merged.run(rules, at, op, olds.get(key).and_then(Option::as_ref))?;
            let Some(now) = now.filter(|_| merged.changes.len() > before) else { continue };
            let row = now.as_ref().map(|row| encoded(rules, row)).transpose()?;
            let effect = Effect { row, change: merged.changes.len() - 1 };
            olds.insert(Arc::clone(key), now);
            match places.get(key).and_then(|place| merged.effects.get_mut(*place)) {
                Some((_, known)) => *known = effect,
                None => {
                    places.insert(Arc::clone(key), merged.effects.len());
                    merged.effects.push((Arc::clone(key), effect));
                }
            }
        }
        Ok(merged)
    }

    /// Runs one operation: the key's new state, or `None` where nothing changes.
    fn run(&mut self, rules: &Rules, at: usize, op: &Op, old: Option<&Row>) -> Result<Option<Option<Row>>> {
        if op.delete {
            return self.delete(rules, at, op, old);
        }
        let new = match rules.partial(op) {
            None => rules.full(&op.row),
            Some(target) if old.is_some() && target.len() == rules.schema.primary_key.len() => return Ok(None),
            Some(target) => rules.merge(target, old, &op.row),
        };
        match old {
            None if rules.reads_old(op) => {
                self.live_rows += 1;
                self.changes.push((ChangeType::Insert, new.clone()));
            }
            // Whether there was a row is not known, and not asked (table-model §7.2).
            None => self.changes.push((ChangeType::UpdateAfter, new.clone())),
            Some(old) => self.update(rules, old, &new),
        }
        Ok(Some(Some(new)))
    }

    fn update(&mut self, rules: &Rules, old: &Row, new: &Row) {
        if !rules.wal_image {
            self.changes.push((ChangeType::UpdateBefore, old.clone()));
        }
        self.changes.push((ChangeType::UpdateAfter, new.clone()));
    }

    fn delete(&mut self, rules: &Rules, at: usize, op: &Op, old: Option<&Row>) -> Result<Option<Option<Row>>> {
        match rules.deletes {
            DeleteBehavior::Ignore => return Ok(None),
            DeleteBehavior::Disable => {
                let what = format!("row {at}: deletes are disabled for this table ('table.delete.behavior')");
                return Err(Error::new(ErrorKind::DeletesDisabled, what));
            }
            DeleteBehavior::Allow => {}
        }
        let Some(old) = old else { return Ok(None) };
        if let Some(left) = rules.partial(op).and_then(|target| rules.partial_delete(target, old)) {
            self.update(rules, old, &left);
            return Ok(Some(Some(left)));
        }
        self.live_rows -= 1;
        self.changes.push((ChangeType::Delete, old.clone()));
        Ok(Some(None))
    }
}
