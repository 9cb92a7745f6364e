//! The running kernel's type information: where a field lies, whether a function exists.
//!
//! Format: Linux `Documentation/bpf/btf.rst`. Only what is asked here is decoded.

use std::path::Path;

use thiserror::Error;

const MAGIC: u16 = 0xeb9f;
const KIND_INT: u32 = 1;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_ENUM64: u32 = 19;

/// Why type information could not be used.
#[derive(Debug, Error)]
pub enum BtfError {
    /// The file could not be read.
    #[error("no type information at {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The bytes are not BTF.
    #[error("the kernel's type information is damaged: {0}")]
    Malformed(&'static str),
    /// A field that stallscope depends on is not there.
    #[error("this kernel's {structure} has no field {field}")]
    NoField {
        /// The structure.
        structure: &'static str,
        /// The field.
        field: &'static str,
    },
}

/// Decoded type information.
#[derive(Debug)]
pub struct KernelTypes {
    types: Vec<Type>,
    /// The string section: names are offsets into it. Few of the hundred thousand are ever asked
    /// for, so none is copied.
    strings: Vec<u8>,
    /// Named types by kind: name and number.
    structs: Vec<(u32, u32)>,
    functions: Vec<(u32, u32)>,
    typedefs: Vec<(u32, u32)>,
}

#[derive(Debug)]
struct Type {
    kind: u32,
    size_or_type: u32,
    /// Name, type and bit offset of members; parameters of a prototype have offset 0.
    members: Vec<(u32, u32, u32)>,
}

impl KernelTypes {
    /// Reads the type information of the running kernel.
    ///
    /// # Errors
    /// The kernel was built without it, or it may not be read.
    pub fn of_running_kernel() -> Result<Self, BtfError> {
        let path = Path::new("/sys/kernel/btf/vmlinux");
        let data = std::fs::read(path)
            .map_err(|source| BtfError::Read { path: path.display().to_string(), source })?;
        Self::parse(&data)
    }

    /// Decodes BTF.
    ///
    /// # Errors
    /// The bytes are not little-endian BTF, or end early.
    pub fn parse(data: &[u8]) -> Result<Self, BtfError> {
        let reader = Reader { data };
        if reader.u16(0)? != MAGIC {
            return Err(BtfError::Malformed("wrong magic number"));
        }
        let header = reader.u32(4)? as usize;
        let section = |offset: usize| -> Result<(usize, usize), BtfError> {
            let start = reader.u32(offset)? as usize;
            let length = reader.u32(offset + 4)? as usize;
            let start = header.checked_add(start).ok_or(BtfError::Malformed("offset"))?;
            let end = start.checked_add(length).ok_or(BtfError::Malformed("length"))?;
            if end > data.len() {
                return Err(BtfError::Malformed("a section ends beyond the file"));
            }
            Ok((start, end))
        };
        let (types_start, types_end) = section(8)?;
        let (strings_start, strings_end) = section(16)?;
        let strings = &data[strings_start..strings_end];
        let mut found = Self {
            types: vec![Type { kind: 0, size_or_type: 0, members: Vec::new() }],
            strings: strings.to_vec(),
            structs: Vec::new(),
            functions: Vec::new(),
            typedefs: Vec::new(),
        };
        let mut at = types_start;
        while at < types_end {
            at = found.parse_type(&reader, at)?;
        }
        Ok(found)
    }

    fn parse_type(&mut self, reader: &Reader<'_>, at: usize) -> Result<usize, BtfError> {
        let name = reader.u32(at)?;
        let info = reader.u32(at + 4)?;
        let size_or_type = reader.u32(at + 8)?;
        let (kind, count, flag) = ((info >> 24) & 0x1f, (info & 0xffff) as usize, info >> 31 != 0);
        let mut next = at + 12;
        let mut members = Vec::new();
        match kind {
            KIND_STRUCT | KIND_UNION => {
                for _ in 0..count {
                    let offset = reader.u32(next + 8)?;
                    // With the flag, the upper byte is the width of a bit field.
                    let offset = if flag { offset & 0x00ff_ffff } else { offset };
                    let member = reader.u32(next)?;
                    members.push((member, reader.u32(next + 4)?, offset));
                    next += 12;
                }
            }
            KIND_FUNC_PROTO => {
                for _ in 0..count {
                    members.push((reader.u32(next)?, reader.u32(next + 4)?, 0));
                    next += 8;
                }
            }
            KIND_INT | KIND_VAR | KIND_DECL_TAG => next += 4,
            KIND_ARRAY => next += 12,
            KIND_ENUM => next += 8 * count,
            KIND_DATASEC | KIND_ENUM64 => next += 12 * count,
            _ => {}
        }
        let id = u32::try_from(self.types.len()).map_err(|_| BtfError::Malformed("types"))?;
        // Offset 0 is the empty name.
        if name != 0 {
            match kind {
                KIND_STRUCT => self.structs.push((name, id)),
                KIND_FUNC => self.functions.push((name, id)),
                KIND_TYPEDEF => self.typedefs.push((name, id)),
                _ => {}
            }
        }
        self.types.push(Type { kind, size_or_type, members });
        Ok(next)
    }

    fn is_named(&self, offset: u32, name: &str) -> bool {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }

    /// The first type of that name.
    fn named(&self, types: &[(u32, u32)], name: &str) -> Option<u32> {
        types.iter().find(|(offset, _)| self.is_named(*offset, name)).map(|(_, id)| *id)
    }

    /// Byte offset of a field; `a.b` goes into a nested structure. Anonymous structures and
    /// unions are searched as the C language does.
    ///
    /// # Errors
    /// There is no such structure or field.
    pub fn offset(&self, structure: &'static str, field: &'static str) -> Result<u32, BtfError> {
        let missing = || BtfError::NoField { structure, field };
        let mut id = self.named(&self.structs, structure).ok_or_else(missing)?;
        let mut total = 0;
        for part in field.split('.') {
            let (bits, member) = self.member(id, part, 0).ok_or_else(missing)?;
            total += bits;
            id = self.resolve(member);
        }
        Ok(total / 8)
    }

    fn member(&self, id: u32, name: &str, depth: u32) -> Option<(u32, u32)> {
        let structure = self.types.get(id as usize)?;
        for (member, kind, offset) in &structure.members {
            if self.is_named(*member, name) {
                return Some((*offset, *kind));
            }
            if *member == 0 && depth < 8 {
                let inner = self.resolve(*kind);
                if let Some((bits, found)) = self.member(inner, name, depth + 1) {
                    return Some((offset + bits, found));
                }
            }
        }
        None
    }

    /// Follows typedefs and qualifiers.
    fn resolve(&self, mut id: u32) -> u32 {
        for _ in 0..32 {
            match self.types.get(id as usize) {
                // typedef, volatile, const, restrict, type tag
                Some(t) if matches!(t.kind, 8..=11 | 18) => id = t.size_or_type,
                _ => break,
            }
        }
        id
    }

    /// Whether the kernel has a function of this name that programs can attach to.
    #[must_use]
    pub fn has_function(&self, name: &str) -> bool {
        self.named(&self.functions, name).is_some()
    }

    /// Number of arguments a BTF tracepoint passes; `None` if there is no such tracepoint.
    #[must_use]
    pub fn tracepoint_arguments(&self, name: &str) -> Option<usize> {
        // The prototype of the tracepoint's callback; its first parameter is the callback's data.
        let typedef = self.named(&self.typedefs, &format!("btf_trace_{name}"))?;
        let pointer = self.types.get(typedef as usize)?.size_or_type;
        let proto = self.types.get(pointer as usize)?.size_or_type;
        let proto = self.types.get(proto as usize)?;
        (proto.kind == KIND_FUNC_PROTO).then(|| proto.members.len().saturating_sub(1))
    }
}

struct Reader<'a> {
    data: &'a [u8],
}

impl Reader<'_> {
    fn u16(&self, at: usize) -> Result<u16, BtfError> {
        let bytes = at.checked_add(2).and_then(|end| self.data.get(at..end));
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map(u16::from_le_bytes)
            .ok_or(BtfError::Malformed("it ends early"))
    }

    fn u32(&self, at: usize) -> Result<u32, BtfError> {
        let bytes = at.checked_add(4).and_then(|end| self.data.get(at..end));
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map(u32::from_le_bytes)
            .ok_or(BtfError::Malformed("it ends early"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernels_types_are_decoded() {
        let types = KernelTypes::of_running_kernel().expect("readable type information");
        let pid = types.offset("task_struct", "pid").expect("pid");
        let tgid = types.offset("task_struct", "tgid").expect("tgid");
        assert_eq!(tgid, pid + 4);
        assert!(types.offset("task_struct", "se.exec_start").expect("nested") > 0);
        assert!(types.offset("task_struct", "no_such_field").is_err());
        let arguments = types.tracepoint_arguments("sched_switch").expect("sched_switch");
        assert!((3..=4).contains(&arguments), "{arguments}");
        assert_eq!(types.tracepoint_arguments("no_such_tracepoint"), None);
    }

    #[test]
    fn damaged_type_information_is_an_error() {
        assert!(KernelTypes::parse(b"").is_err());
        assert!(KernelTypes::parse(b"ELF!").is_err());
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        bytes.extend([24_u32, 0, 1000, 1000, 8].iter().flat_map(|w| w.to_le_bytes()));
        assert!(KernelTypes::parse(&bytes).is_err());
    }
}
