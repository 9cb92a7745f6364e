//! The kernel's own symbols, from `/proc/kallsyms`.

use std::sync::Arc;

/// Furthest distance between an address and the symbol that names it, in bytes. Where modules end,
/// the next symbol may be gigabytes away.
const MAX_DISTANCE: u64 = 1 << 20;

/// The text symbols of the running kernel.
#[derive(Debug, Default)]
pub(super) struct KernelSymbols {
    /// By address: address, name and module (an index into `modules`).
    symbols: Vec<(u64, Box<str>, u16)>,
    /// `[kernel]` first, then `[name]` of each module.
    modules: Vec<Arc<str>>,
}

impl KernelSymbols {
    /// Reads the running kernel's; empty where they may not be read.
    pub(super) fn read() -> Self {
        // Names are ASCII, but a module's may be anything.
        let bytes = std::fs::read("/proc/kallsyms").unwrap_or_default();
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Parses the text of kallsyms. Addresses are zero for readers without `CAP_SYSLOG` or with
    /// `kptr_restrict` set; such symbols are dropped, so that nothing is named wrongly.
    pub(super) fn parse(text: &str) -> Self {
        let mut symbols = Vec::new();
        let mut modules = vec![Arc::from("[kernel]")];
        for line in text.lines() {
            // ffffffffc03a2f10 t nf_hook_slow  [nf_tables]
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            // __pfx_ symbols name the padding in front of functions.
            if address == 0 || !matches!(kind, "t" | "T" | "w" | "W") || name.starts_with("__pfx_")
            {
                continue;
            }
            let module = words.next().map_or(0, |module| {
                let known = modules.iter().rposition(|m| **m == *module);
                known.unwrap_or_else(|| {
                    modules.push(Arc::from(module));
                    modules.len() - 1
                })
            });
            symbols.push((address, name.into(), u16::try_from(module).unwrap_or(0), kind == "T"));
        }
        // Of aliases, the global one.
        symbols.sort_by_key(|s: &(u64, Box<str>, u16, bool)| (s.0, !s.3));
        symbols.dedup_by_key(|s| s.0);
        Self { symbols: symbols.into_iter().map(|(a, n, m, _)| (a, n, m)).collect(), modules }
    }

    /// Name and module of the function at an address.
    pub(super) fn find(&self, address: u64) -> Option<(&str, &Arc<str>)> {
        let after = self.symbols.partition_point(|s| s.0 <= address);
        let (start, name, module) = self.symbols[..after].last()?;
        (address - start < MAX_DISTANCE)
            .then(|| self.modules.get(usize::from(*module)).map(|module| (&**name, module)))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_symbols_are_found_with_their_module() {
        let symbols = KernelSymbols::parse(
            "ffffffff81000000 T _stext\nffffffff81000100 t helper\nffffffff81000100 T do_sleep\n\
             ffffffff810000f0 t __pfx_do_sleep\nffffffff82000000 D jiffies\nnonsense\n\
             ffffffffc0000000 t nf_hook\t[nf_tables]\n",
        );
        let name = |address| symbols.find(address).map(|(name, module)| (name, &**module));
        assert_eq!(name(0xffff_ffff_8100_0104), Some(("do_sleep", "[kernel]")));
        assert_eq!(name(0xffff_ffff_8100_00f4), Some(("_stext", "[kernel]")));
        assert_eq!(name(0xffff_ffff_c000_0001), Some(("nf_hook", "[nf_tables]")));
        assert_eq!(name(0xffff_ffff_8300_0000), None);
        assert_eq!(name(0x1000), None);
    }

    #[test]
    fn hidden_addresses_name_nothing() {
        let symbols = KernelSymbols::parse("0000000000000000 T _stext\n0000000000000000 t a\n");
        assert_eq!(symbols.find(0xffff_ffff_8100_0000), None);
        assert_eq!(symbols.find(0), None);
    }
}
