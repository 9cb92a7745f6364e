//! The built-in rules that tell code of libraries, runtimes and the system from the user's own.

use super::foreign_names::{FOREIGN_C, FOREIGN_CRATES, FOREIGN_NAMESPACES};
use super::user_code::CodePlace;

/// Sources of standard libraries and of dependencies.
pub(super) fn foreign_source(path: &str) -> bool {
    const ANYWHERE: [&str; 17] = [
        "/lib/rustlib/",
        "/cargo/registry/",
        "/.cargo/registry/",
        "/registry/src/index.crates.io-",
        "/registry/src/github.com-",
        "/cargo/git/checkouts/",
        "/.cargo/git/checkouts/",
        "/site-packages/",
        "/dist-packages/",
        "/node_modules/",
        "/deps/v8/",
        "/deps/uv/",
        "/deps/jemalloc/",
        "/glibc-",
        "/sysdeps/",
        "/libuv",
        "/libstdc++-v3/",
    ];
    const AT_START: [&str; 8] = [
        "/rustc/",
        "/usr/include/",
        "/usr/local/include/",
        "/usr/lib/",
        "/usr/lib64/",
        "/usr/src/debug/",
        "/usr/src/linux",
        ".cargo/registry/",
    ];
    const RUST_LIBRARY: [&str; 9] = [
        "std",
        "core",
        "alloc",
        "test",
        "proc_macro",
        "panic_unwind",
        "panic_abort",
        "std_detect",
        "backtrace",
    ];
    if ANYWHERE.iter().any(|part| path.contains(part))
        || AT_START.iter().any(|start| path.starts_with(start))
        || (path.ends_with(".rs") && path.contains("/vendor/"))
    {
        return true;
    }
    // library/std/src/… in the paths of a rust-src component, whole segments only.
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        if segment == "library" && segments.peek().is_some_and(|next| RUST_LIBRARY.contains(next)) {
            return true;
        }
    }
    false
}

/// Python files of the standard library and of installed packages, and modules without a file.
pub(crate) fn foreign_python(path: &str) -> bool {
    const INSTALLED: [&str; 2] = ["/site-packages/", "/dist-packages/"];
    if path.starts_with("<frozen ") || INSTALLED.iter().any(|part| path.contains(part)) {
        return true;
    }
    // …/lib/python3.11/asyncio/events.py, …/lib/python311.zip/…
    path.split('/').zip(path.split('/').skip(1)).any(|(folder, next)| {
        let version = next.strip_prefix("python3");
        matches!(folder, "lib" | "lib64")
            && version.is_some_and(|v| {
                let v = v.strip_suffix(".zip").unwrap_or(v).trim_end_matches('t');
                v.chars().all(|c| c.is_ascii_digit() || c == '.')
            })
    })
}

/// Functions of libraries and runtimes, by the first segment of their path.
pub(super) fn foreign_function(name: &str, code: &CodePlace<'_>) -> bool {
    if name.ends_with("@plt") {
        return true;
    }
    let Some(crate_or_namespace) = first_segment(name) else {
        return foreign_c_function(name, code);
    };
    if code.rust && FOREIGN_CRATES.contains(&crate_or_namespace) {
        return true;
    }
    FOREIGN_NAMESPACES.contains(&crate_or_namespace)
}

fn foreign_c_function(name: &str, code: &CodePlace<'_>) -> bool {
    // A C `main` has a source path wherever there is debug information; Rust's has none ever.
    if name == "main" && code.rust && code.file.is_none() {
        return true;
    }
    let rest_is_api = |prefix: &str| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase() || c == '_'))
    };
    (name.starts_with("__") && !name.starts_with("__pyx_"))
        || FOREIGN_C.contains(&name)
        || rest_is_api("Py")
        || rest_is_api("_Py")
        || ["uv_", "_dl_", "_IO_", "je_", "_rjem_", "SSL_", "EVP_", "CRYPTO_", "OPENSSL_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// The crate or outermost namespace that a path begins with; `None` for names without a path.
///
/// `<X as Trait>::f` is X's, unless X is a primitive, a tuple or a reference to such: then it is
/// the trait's.
fn first_segment(name: &str) -> Option<&str> {
    let mut rest = name;
    loop {
        let before = rest;
        rest = rest.trim_start_matches(['<', '&', '*', '[', ' ']);
        if !rest.starts_with("(anonymous") {
            rest = rest.trim_start_matches('(');
        }
        for word in
            ["mut ", "const ", "dyn ", "impl ", "for", "non-virtual thunk to ", "virtual thunk to "]
        {
            match rest.strip_prefix(word) {
                Some(inner) if word != "for" => rest = inner,
                // for<'a> fn(…)
                Some(inner) if inner.starts_with('<') => {
                    rest = inner.split_once('>').map_or(inner, |(_, after)| after);
                }
                _ => {}
            }
        }
        if rest == before {
            break;
        }
    }
    let end =
        rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
    let (segment, after) = rest.split_at(end);
    if after.starts_with("::") && !segment.is_empty() {
        return Some(segment);
    }
    if rest.starts_with("(anonymous") {
        return Some("(anonymous");
    }
    if !name.starts_with('<') {
        // `Class<…>::method` of C++ has a path all the same; its own name is the outermost.
        return after.starts_with('<').then_some(segment).filter(|_| name.contains(">::"));
    }
    // <u8 as Trait>::f, <(A, B) as Trait>::f, <fn() as Trait>::f
    let (_, by_trait) = name.split_once(" as ")?;
    let end = by_trait.find("::")?;
    Some(by_trait[..end].trim_start_matches('<'))
}

/// Binaries of the system, of runtimes and of dependencies.
pub(super) fn foreign_module(path: &str) -> bool {
    const LIBRARIES: [&str; 25] = [
        "ld-",
        "ld.so",
        "libc.so",
        "libc-2.",
        "libc++",
        "libcrypto.",
        "libcrypto-",
        "libdl.",
        "libdl-",
        "libgcc_s",
        "libjvm.",
        "libm.so",
        "libm-2.",
        "libnode.",
        "libnss_",
        "libpthread",
        "libpython",
        "libresolv",
        "librt.",
        "librt-",
        "libssl.",
        "libssl-",
        "libstdc++",
        "libuv.",
        "linux-vdso",
    ];
    const SYSTEM: [&str; 5] = ["/lib/", "/lib64/", "/lib32/", "/usr/lib", "/nix/store/"];
    const DEPENDENCIES: [&str; 4] =
        ["/site-packages/", "/dist-packages/", "/node_modules/", "/lib-dynload/"];
    const INTERPRETERS: [&str; 9] =
        ["python", "pypy", "node", "java", "ruby", "perl", "php", "deno", "bun"];
    if path.starts_with('[') {
        return true;
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    if LIBRARIES.iter().any(|library| name.starts_with(library)) {
        return true;
    }
    let is_library = name.contains(".so") || name.ends_with(".node");
    if is_library {
        return SYSTEM.iter().any(|dir| path.starts_with(dir))
            || DEPENDENCIES.iter().any(|dir| path.contains(dir));
    }
    // python3.11, python3.14t, pypy3, php8.2 — but not python-service or node_exporter.
    INTERPRETERS.iter().any(|interpreter| {
        let version = name.strip_prefix(interpreter);
        let version = version.map(|version| version.strip_suffix('t').unwrap_or(version));
        version.is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
    }) || name == "nodejs"
}
