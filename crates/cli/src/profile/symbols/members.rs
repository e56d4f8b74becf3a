//! Which member of a variable lies at an offset, from the debug information: `cache` and 0x28 make `cache.mutex_`.

use super::debug::Slice;
use super::wrappers::is_among;
use addr2line::gimli::{
    self, AttributeValue, DebuggingInformationEntry, Dwarf, EntriesTreeNode, Unit, UnitOffset,
    constants as dw,
};
use std::collections::HashMap;

/// Nested types are followed so far; debug information that is damaged may nest without end.
const DEEPEST: u32 = 12;

/// Types that are locks: what lies inside them is of no interest.
const LOCKS: &str = "pthread_mutex_t pthread_rwlock_t pthread_cond_t pthread_spinlock_t sem_t pthread_barrier_t mtx_t \
    cnd_t mutex timed_mutex recursive_mutex recursive_timed_mutex shared_mutex shared_timed_mutex \
    condition_variable condition_variable_any counting_semaphore";

type Entry = DebuggingInformationEntry<Slice>;

/// The variables of a file with their types.
pub(super) struct Members {
    dwarf: Dwarf<Slice>,
    units: Vec<Unit<Slice>>,
    /// By address: the unit, and the type there. Read when it is asked for first.
    variables: Option<HashMap<u64, (usize, UnitOffset)>>,
}

impl Members {
    pub fn new(dwarf: Dwarf<Slice>) -> Self {
        Self { dwarf, units: Vec::new(), variables: None }
    }

    /// The member, with the dot before it, at `offset` of the variable whose address in the file is `start`. It is empty if
    /// the variable itself is the lock. Elements of an array are not told apart: `[]`. `None`: not known.
    pub fn path(&mut self, start: u64, offset: u64) -> Option<String> {
        if self.variables.is_none() {
            self.variables = Some(self.read().unwrap_or_default());
        }
        let (unit, kind) = *self.variables.as_ref()?.get(&start)?;
        let mut path = String::new();
        self.descend(&self.units[unit], kind, offset, 0, &mut path)?;
        Some(path)
    }

    /// The variables outside functions.
    fn read(&mut self) -> gimli::Result<HashMap<u64, (usize, UnitOffset)>> {
        let mut variables = HashMap::new();
        let mut headers = self.dwarf.units();
        while let Some(header) = headers.next()? {
            let unit = self.dwarf.unit(header)?;
            collect(unit.entries_tree(None)?.root()?, &unit, self.units.len(), &mut variables)?;
            self.units.push(unit);
        }
        Ok(variables)
    }

    fn descend(
        &self,
        unit: &Unit<Slice>,
        kind: UnitOffset,
        offset: u64,
        depth: u32,
        path: &mut String,
    ) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        let entry = unit.entry(kind).ok()?;
        if self.name(unit, &entry).is_some_and(|name| is_lock(&name)) {
            return Some(());
        }
        match entry.tag() {
            dw::DW_TAG_typedef
            | dw::DW_TAG_const_type
            | dw::DW_TAG_volatile_type
            | dw::DW_TAG_restrict_type => self.descend(unit, type_of(unit, &entry)?, offset, depth + 1, path),
            dw::DW_TAG_array_type => {
                let element = type_of(unit, &entry)?;
                let size = size_of(unit, element, 0)?;
                path.push_str("[]");
                self.descend(unit, element, offset.checked_rem(size)?, depth + 1, path)
            }
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                let (at, member, name) = self.member(unit, kind, offset)?;
                if let Some(name) = name {
                    path.push('.');
                    path.push_str(&name);
                }
                self.descend(unit, member, offset - at, depth + 1, path)
            }
            _ => Some(()),
        }
    }

    /// The last member that begins at or before `offset` and reaches over it: its offset, type and, unless it is a base
    /// class or nameless, its name.
    fn member(
        &self,
        unit: &Unit<Slice>,
        kind: UnitOffset,
        offset: u64,
    ) -> Option<(u64, UnitOffset, Option<String>)> {
        let mut tree = unit.entries_tree(Some(kind)).ok()?;
        let mut children = tree.root().ok()?.children();
        let mut found = None;
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            if ![dw::DW_TAG_member, dw::DW_TAG_inheritance].contains(&entry.tag()) {
                continue;
            }
            let at = match entry.attr_value(dw::DW_AT_data_member_location) {
                Some(value) => value.udata_value()?,
                // The members of a union have none; a static member is declared like one.
                None if entry.attr_value(dw::DW_AT_external).is_none() => 0,
                None => continue,
            };
            let Some(kind) = type_of(unit, entry) else { continue };
            if at <= offset && size_of(unit, kind, 0).is_some_and(|size| offset - at < size) {
                let name = self.name(unit, entry).filter(|_| entry.tag() == dw::DW_TAG_member);
                found = Some((at, kind, name));
            }
        }
        found
    }

    fn name(&self, unit: &Unit<Slice>, entry: &Entry) -> Option<String> {
        let name = self.dwarf.attr_string(unit, entry.attr_value(dw::DW_AT_name)?).ok()?;
        Some(name.to_string_lossy().into_owned())
    }
}

fn is_lock(name: &str) -> bool {
    is_among(LOCKS, name) || ["Mutex<", "RwLock<"].iter().any(|start| name.starts_with(start))
}

/// The variables among the children of a unit or name space.
fn collect(
    node: EntriesTreeNode<Slice>,
    unit: &Unit<Slice>,
    number: usize,
    variables: &mut HashMap<u64, (usize, UnitOffset)>,
) -> gimli::Result<()> {
    let mut children = node.children();
    while let Some(child) = children.next()? {
        let entry = child.entry();
        match entry.tag() {
            dw::DW_TAG_variable => {
                if let Some((address, kind)) = address(entry, unit).zip(type_of(unit, entry)) {
                    variables.insert(address, (number, kind));
                }
            }
            dw::DW_TAG_namespace => collect(child, unit, number, variables)?,
            _ => {}
        }
    }
    Ok(())
}

/// Where a variable lies, if that is a fixed address.
fn address(entry: &Entry, unit: &Unit<Slice>) -> Option<u64> {
    let AttributeValue::Exprloc(expression) = entry.attr_value(dw::DW_AT_location)? else { return None };
    let mut operations = expression.operations(unit.encoding());
    match operations.next() {
        Ok(Some(gimli::Operation::Address { address })) => Some(address),
        _ => None,
    }
}

/// The type of a variable or member, or of what it completes.
fn type_of(unit: &Unit<Slice>, entry: &Entry) -> Option<UnitOffset> {
    let reference = |entry: &Entry, name| match entry.attr_value(name) {
        Some(AttributeValue::UnitRef(offset)) => Some(offset),
        _ => None,
    };
    reference(entry, dw::DW_AT_type).or_else(|| {
        let declaration = unit.entry(reference(entry, dw::DW_AT_specification)?).ok()?;
        reference(&declaration, dw::DW_AT_type)
    })
}

fn size_of(unit: &Unit<Slice>, kind: UnitOffset, depth: u32) -> Option<u64> {
    let entry = unit.entry(kind).ok().filter(|_| depth <= DEEPEST)?;
    if let Some(size) = entry.attr_value(dw::DW_AT_byte_size) {
        return size.udata_value();
    }
    match entry.tag() {
        dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => Some(8),
        dw::DW_TAG_array_type => {
            let mut count = 1_u64;
            let mut tree = unit.entries_tree(Some(kind)).ok()?;
            let mut children = tree.root().ok()?.children();
            while let Ok(Some(child)) = children.next() {
                let number = |name| child.entry().attr_value(name).and_then(|value| value.udata_value());
                let length =
                    number(dw::DW_AT_count).or_else(|| number(dw::DW_AT_upper_bound)?.checked_add(1));
                count = count.checked_mul(length?)?;
            }
            count.checked_mul(size_of(unit, type_of(unit, &entry)?, depth + 1)?)
        }
        _ => size_of(unit, type_of(unit, &entry)?, depth + 1),
    }
}
