//! Names for the stubs of the procedure linkage table, which have no symbols.

use std::collections::HashMap;

use object::Architecture;

use super::elf::Elf;
use super::error::LoadError;
use super::symbols::Symbols;

/// Most stubs that are named; each takes a string.
const MAX_STUBS: usize = 32 << 10;

/// Calls `found` with the addresses and the name (`read@plt`) of each stub.
///
/// A stub of x86-64 jumps through a slot of the global offset table (`ff 25` and a displacement),
/// and `.rela.plt` or `.rela.dyn` says which symbol the slot is for (psABI x86-64, 5.2). Other
/// architectures have no names for their stubs here.
pub(super) fn stubs(file: &Elf, mut found: impl FnMut(u64, u64, String)) -> Result<(), LoadError> {
    if file.architecture != Architecture::X86_64 {
        return Ok(());
    }
    let slots = slots(file)?;
    let mut left = MAX_STUBS;
    for name in [".plt", ".plt.sec", ".plt.got"] {
        let Some(section) = file.section(name).filter(|s| s.has_bytes() && s.executable) else {
            continue;
        };
        let step = if section.entry_size == 8 { 8 } else { 16 };
        let bytes = file.read_section(name)?;
        for (i, stub) in bytes.chunks_exact(step).enumerate() {
            let start = section.address.wrapping_add((i * step) as u64);
            // The jump comes first, or after endbr64, or after endbr64 and a bnd prefix.
            let Some(at) = (0..=5).find(|&at| stub.get(at..at + 2) == Some(&[0xff, 0x25])) else {
                continue;
            };
            let Some(&displacement) = stub.get(at + 2..).and_then(<[u8]>::first_chunk) else {
                continue;
            };
            let displacement = i64::from(i32::from_le_bytes(displacement));
            let slot = start.wrapping_add(at as u64 + 6).wrapping_add_signed(displacement);
            let Some(symbol) = slots.get(&slot) else { continue };
            if left == 0 {
                return Ok(());
            }
            left -= 1;
            found(start, start.wrapping_add(step as u64), format!("{symbol}@plt"));
        }
    }
    Ok(())
}

/// Slots of the global offset table, by address, with the symbol each is for.
fn slots(file: &Elf) -> Result<HashMap<u64, String>, LoadError> {
    let symbols = file.read_section(".dynsym")?;
    let names: Vec<u32> = Symbols::new(file, &symbols).map(|s| s.name).collect();
    let strings = file.read_section(".dynstr")?;
    let mut slots = HashMap::new();
    for section in [".rela.plt", ".rela.dyn"] {
        let bytes = file.read_section(section)?;
        // Elf64_Rela: offset, info (symbol in the upper half), addend.
        for entry in bytes.chunks_exact(24) {
            let (Some(&slot), Some(&info)) = (entry.first_chunk(), entry[8..].first_chunk()) else {
                continue;
            };
            let index = (u64::from_le_bytes(info) >> 32) as usize;
            let Some(rest) = names.get(index).and_then(|&at| strings.get(at as usize..)) else {
                continue;
            };
            let end = rest.iter().take(1024).position(|b| *b == 0).unwrap_or(0);
            if index != 0 && end > 0 && slots.len() < MAX_STUBS {
                let name = String::from_utf8_lossy(&rest[..end]).into_owned();
                slots.insert(u64::from_le_bytes(slot), name);
            }
        }
    }
    Ok(slots)
}
