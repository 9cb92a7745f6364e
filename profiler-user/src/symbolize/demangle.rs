//! Symbol names as their authors wrote them.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use super::printable::printable;

/// Longest mangled name that is worth demangling, in bytes. Demanglers expand back-references, so
/// their work is not linear in the input.
const MAX_MANGLED: usize = 16 << 10;
/// Longest demangled text kept, in bytes, before it is cut for printing.
const MAX_DEMANGLED: usize = 32 << 10;

/// Demangles Rust (legacy and v0, without the hash) and C++ (without parameters), drops symbol
/// versions and the suffixes of compiler-made clones, and makes the result printable.
///
/// A name in neither scheme comes back as it is.
pub(super) fn demangle(raw: &str) -> String {
    let plt = if raw.ends_with("@plt") { "@plt" } else { "" };
    let name = raw.split_once('@').map_or(raw, |(name, _)| name);
    let mut text = demangled(without_clone_suffix(name)).into_owned();
    text.push_str(plt);
    match printable(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(clean) => clean,
    }
}

fn demangled(name: &str) -> Cow<'_, str> {
    if name.len() > MAX_MANGLED {
        return Cow::Borrowed(name);
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        let mut out = Bounded::default();
        // The alternate form leaves the hash out.
        let complete = write!(out, "{rust:#}").is_ok();
        if complete || !out.0.is_empty() {
            return Cow::Owned(out.0);
        }
    }
    if name.starts_with("_Z") {
        let options =
            cpp_demangle::DemangleOptions::new().no_params().no_return_type().recursion_limit(96);
        let parse = cpp_demangle::ParseOptions::default().recursion_limit(96);
        if let Ok(symbol) = cpp_demangle::Symbol::new_with_options(name, &parse) {
            let mut out = Bounded::default();
            if symbol.structured_demangle(&mut out, &options).is_ok() && !out.0.is_empty() {
                return Cow::Owned(out.0);
            }
        }
    }
    Cow::Borrowed(name)
}

/// Drops what GCC and LLVM append to the clones of a function: `.cold`, `.isra.0`, `.llvm.123` …
fn without_clone_suffix(name: &str) -> &str {
    const CLONES: [&str; 7] =
        [".cold", ".isra.", ".constprop.", ".part.", ".lto_priv.", ".llvm.", ".localalias"];
    let end = CLONES.iter().filter_map(|suffix| name.find(suffix)).filter(|&at| at > 0).min();
    end.map_or(name, |end| &name[..end])
}

/// Text that stops growing at [`MAX_DEMANGLED`].
#[derive(Default)]
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_DEMANGLED {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_is_recognised() {
        for (raw, expected) in [
            (
                "_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE",
                "core::fmt::Formatter::write_str",
            ),
            (
                "_ZN55_$LT$app..X$u20$as$u20$core..future..future..Future$GT$4poll17h0123456789abcdefE",
                "<app::X as core::future::future::Future>::poll",
            ),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_ZN3app4SpinIiE3runEiPKc", "app::Spin<int>::run"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back",
            ),
            ("main", "main"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("read@plt", "read@plt"),
            ("dictRehash.cold", "dictRehash"),
            ("spin.constprop.0.isra.1", "spin"),
            ("_ZN3app4spinEv.part.0", "app::spin"),
            ("_Z", "_Z"),
            ("", ""),
            ("bad\u{1b}[2Jname", "bad[2Jname"),
        ] {
            assert_eq!(demangle(raw), expected, "{raw}");
        }
    }

    #[test]
    fn expanding_names_stay_small() {
        // Each substitution doubles what came before it.
        let mut bomb = String::from("_Z1fI");
        for i in 0..64 {
            bomb.push_str(&format!("St4pairIS{}_S{}_E", i, i));
        }
        bomb.push_str("EvT_");
        assert!(demangle(&bomb).len() <= 4 * 4100);
        assert!(demangle(&"_ZN".repeat(100_000)).len() <= 4 * 4100);
    }
}
