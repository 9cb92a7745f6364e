//! Attributes of objects: where each version keeps what an instance was given.

use super::interpreter::Interpreter;

/// `PyObject.ob_type`
const TYPE: u16 = 8;
/// Fields of `PyTypeObject`, the same since 3.8.
const TYPE_BASIC_SIZE: u16 = 32;
const TYPE_DICT: u16 = 264;
const TYPE_DICT_OFFSET: u16 = 288;
/// `PyHeapTypeObject.ht_cached_keys`: 3.8 to 3.15. Which one it is shows by the names found there.
const CACHED_KEYS: [u16; 4] = [864, 872, 880, 888];
/// `PyMemberDescrObject.d_member`, `PyMemberDef.offset`
const MEMBER: u16 = 40;
const MEMBER_OFFSET: u16 = 16;
/// `PyDictObject.ma_values`
const DICT_VALUES: u16 = 40;
/// Where 3.11 and 3.12 keep the values or the dictionary: before the object.
const VALUES_BEFORE: u64 = 32;
const DICT_BEFORE: u64 = 24;
/// The same without the lock, where the collector keeps nothing before an object
/// (`Include/internal/pycore_object.h`, `MANAGED_DICT_OFFSET`).
const FREE_DICT_BEFORE: u64 = 8;
/// `PyDictValues` has a header of so many bytes since 3.13; the last is whether it is in use.
const VALUES_HEADER: u64 = 8;
const FIRST_WITH_DICT_BEFORE: u8 = 11;
const FIRST_WITH_TAGGED_DICT: u8 = 12;
const FIRST_WITH_INLINE_VALUES: u8 = 13;
/// Largest basic size of an object that is believed.
const SIZE_MAX: u64 = 1 << 16;
/// `PyVarObject.ob_size`, later `_PyLongValue.lv_tag`; then the digits.
const INTEGER_SIZE: u16 = 16;
const INTEGER_DIGITS: u16 = 24;
const FIRST_WITH_TAGGED_INTEGER: u8 = 12;

impl Interpreter {
    /// An attribute of an instance: of its dictionary, or a slot of its own type.
    pub(super) fn attribute(&self, object: u64, name: &str) -> Option<u64> {
        self.inline(object, name)
            .or_else(|| self.memory.lookup(&self.offsets, self.dict_of(object)?, name))
            .or_else(|| self.slot(object, name))
            .filter(|&value| value != 0)
    }

    /// A field of an object that lies at `field` in builds with the lock.
    pub(super) fn part(&self, object: u64, field: u16) -> Option<u64> {
        self.memory.field(object, self.offsets.shifted(field))
    }

    /// The name of an object's type.
    pub(super) fn type_name(&self, object: u64) -> Option<String> {
        let kind = self.part(object, TYPE)?;
        self.memory.name_of_type(&self.offsets, kind)
    }

    /// A small non-negative integer.
    pub(super) fn small_integer(&self, object: u64) -> Option<u32> {
        if self.type_name(object)? != "int" {
            return None;
        }
        let size = self.part(object, INTEGER_SIZE)?;
        let one_digit = if self.offsets.minor >= FIRST_WITH_TAGGED_INTEGER {
            size >> 3 == 1 && size & 3 == 0
        } else {
            size == 1
        };
        let digits = self.offsets.shifted(INTEGER_DIGITS);
        one_digit.then(|| self.memory.half(object.wrapping_add(u64::from(digits)))).flatten()
    }

    /// An attribute among values that the instance shares the names of with others of its type.
    fn inline(&self, object: u64, name: &str) -> Option<u64> {
        let values = self.values(object)?;
        let kind = self.part(object, TYPE)?;
        let at = CACHED_KEYS.iter().find_map(|&at| {
            let keys = self.part(kind, at).filter(|&keys| keys != 0)?;
            self.position(keys, name)
        })?;
        self.memory.word(values.checked_add(at as u64 * 8)?)
    }

    /// The dictionary of an instance that has one.
    fn dict_of(&self, object: u64) -> Option<u64> {
        let dict = if self.offsets.minor >= FIRST_WITH_DICT_BEFORE {
            let before = if self.offsets.free_threaded { FREE_DICT_BEFORE } else { DICT_BEFORE };
            self.memory.word(object.checked_sub(before)?)?
        } else {
            let at = self.dict_offset(object)?;
            self.memory.word(object.checked_add(at)?)?
        };
        (dict != 0 && dict & 1 == 0).then_some(dict)
    }

    fn dict_offset(&self, object: u64) -> Option<u64> {
        let kind = self.part(object, TYPE)?;
        self.part(kind, TYPE_DICT_OFFSET).filter(|&at| at != 0 && at < SIZE_MAX)
    }

    /// Where an instance without a dictionary, or one with shared names, keeps its values.
    fn values(&self, object: u64) -> Option<u64> {
        let memory = &self.memory;
        match self.offsets.minor {
            FIRST_WITH_INLINE_VALUES.. => {
                let kind = self.part(object, TYPE)?;
                let size = self.part(kind, TYPE_BASIC_SIZE).filter(|&size| size < SIZE_MAX)?;
                let values = object.checked_add(size)?;
                let is_valid = memory.word(values)?.to_le_bytes()[3] == 1;
                is_valid.then_some(values + VALUES_HEADER)
            }
            FIRST_WITH_TAGGED_DICT => {
                let tagged = memory.word(object.checked_sub(DICT_BEFORE)?)?;
                (tagged & 1 == 1).then(|| tagged + 1)
            }
            FIRST_WITH_DICT_BEFORE => {
                memory.word(object.checked_sub(VALUES_BEFORE)?).filter(|&values| values != 0)
            }
            _ => {
                let dict = self.dict_of(object)?;
                self.part(dict, DICT_VALUES).filter(|&values| values != 0)
            }
        }
    }

    fn position(&self, keys: u64, name: &str) -> Option<usize> {
        let entries = self.memory.table(&self.offsets, keys)?;
        entries.iter().position(|&(key, _)| {
            self.memory.field(key, self.offsets.unicode_length) == Some(name.len() as u64)
                && self.memory.text(&self.offsets, key).as_deref() == Some(name)
        })
    }

    /// An attribute that its own type keeps in the object itself (`__slots__`).
    fn slot(&self, object: u64, name: &str) -> Option<u64> {
        let memory = &self.memory;
        let dict = self.part(self.part(object, TYPE)?, TYPE_DICT)?;
        let member = memory.lookup(&self.offsets, dict, name)?;
        if self.type_name(member)? != "member_descriptor" {
            return None;
        }
        let at = memory.field(self.part(member, MEMBER)?, MEMBER_OFFSET)?;
        (at < SIZE_MAX).then(|| memory.word(object + at)).flatten()
    }
}
