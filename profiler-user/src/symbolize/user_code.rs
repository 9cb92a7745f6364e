//! Which code is the user's own, and which is a library's, a runtime's or the system's.
//!
//! A report blames the innermost frame of the user's own code. With static linking and LTO all of
//! it lives in one executable, so the module alone decides nothing: the source path is asked first,
//! then the function's path, then the module.

use regex::Regex;

/// What is known about a frame when it is judged.
#[derive(Debug, Clone, Copy, Default)]
pub struct CodePlace<'a> {
    /// Demangled name; `None` where it was made up from an address.
    pub function: Option<&'a str>,
    /// Source file as the debug information gives it.
    pub file: Option<&'a str>,
    /// Path of the binary as the target sees it; `None` for code without a file (a JIT's).
    pub module: Option<&'a str>,
    /// Whether the binary holds Rust code: only there is `core::` the standard library's.
    pub rust: bool,
}

/// The rules that tell the user's own code; the default has the built-in ones.
#[derive(Debug, Clone, Default)]
pub struct UserCode {
    include: Vec<Regex>,
    exclude: Vec<Regex>,
}

impl UserCode {
    /// Adds an exception: code whose function, source file or module matches is the user's own.
    /// It wins over every other rule.
    ///
    /// # Errors
    /// The pattern is no regular expression.
    pub fn include(mut self, pattern: &str) -> Result<Self, regex::Error> {
        self.include.push(Regex::new(pattern)?);
        Ok(self)
    }

    /// Adds an exception: code whose function, source file or module matches is not the user's own.
    ///
    /// # Errors
    /// The pattern is no regular expression.
    pub fn exclude(mut self, pattern: &str) -> Result<Self, regex::Error> {
        self.exclude.push(Regex::new(pattern)?);
        Ok(self)
    }

    /// Whether the code is the user's own.
    #[must_use]
    pub fn is_user(&self, code: &CodePlace<'_>) -> bool {
        let texts = || [code.function, code.file, code.module].into_iter().flatten();
        let any = |rules: &[Regex]| rules.iter().any(|rule| texts().any(|t| rule.is_match(t)));
        if any(&self.include) {
            return true;
        }
        !(any(&self.exclude)
            || code.file.is_some_and(foreign_source)
            || code.function.is_some_and(|name| foreign_function(name, code))
            || code.module.is_none_or(foreign_module))
    }
}

/// Sources of standard libraries and of dependencies.
fn foreign_source(path: &str) -> bool {
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

/// Crates of the standard library and of what async programs are built from, for frames without a
/// source path.
const FOREIGN_CRATES: &[&str] = &[
    "actix",
    "actix_http",
    "actix_rt",
    "actix_server",
    "actix_web",
    "addr2line",
    "aho_corasick",
    "alloc",
    "anyhow",
    "async_executor",
    "async_global_executor",
    "async_io",
    "async_std",
    "async_task",
    "axum",
    "axum_core",
    "backtrace",
    "bytes",
    "calloop",
    "chrono",
    "compiler_builtins",
    "core",
    "crossbeam_channel",
    "crossbeam_deque",
    "crossbeam_epoch",
    "crossbeam_utils",
    "dashmap",
    "flate2",
    "flume",
    "futures",
    "futures_channel",
    "futures_core",
    "futures_executor",
    "futures_io",
    "futures_lite",
    "futures_sink",
    "futures_task",
    "futures_util",
    "gimli",
    "glommio",
    "h2",
    "hashbrown",
    "http",
    "http_body",
    "http_body_util",
    "httparse",
    "hyper",
    "hyper_rustls",
    "hyper_tls",
    "hyper_util",
    "indexmap",
    "itertools",
    "libc",
    "lock_api",
    "log",
    "matchit",
    "memchr",
    "miniz_oxide",
    "mio",
    "monoio",
    "native_tls",
    "once_cell",
    "openssl",
    "panic_abort",
    "panic_unwind",
    "parking_lot",
    "parking_lot_core",
    "polling",
    "proc_macro",
    "prost",
    "quinn",
    "rayon",
    "rayon_core",
    "regex",
    "regex_automata",
    "reqwest",
    "ring",
    "rustc_demangle",
    "rustix",
    "rustls",
    "rusqlite",
    "ryu",
    "serde",
    "serde_core",
    "serde_json",
    "sharded_slab",
    "slab",
    "smallvec",
    "smol",
    "socket2",
    "sqlx",
    "sqlx_core",
    "std",
    "std_detect",
    "test",
    "tokio",
    "tokio_native_tls",
    "tokio_rustls",
    "tokio_stream",
    "tokio_util",
    "tonic",
    "tower",
    "tower_http",
    "tower_layer",
    "tower_service",
    "tracing",
    "tracing_core",
    "tracing_subscriber",
    "want",
    "warp",
];

/// Namespaces of C++ libraries and of Node's internals.
const FOREIGN_NAMESPACES: &[&str] =
    &["std", "__gnu_cxx", "__cxxabiv1", "node", "v8", "boost", "absl"];

/// C functions of libc and of the start of a program, which statically linked programs hold
/// without a source path. Names in the implementation's namespace (`__…`) are not listed.
const FOREIGN_C: &[&str] = &[
    "_start",
    "_init",
    "_fini",
    "_exit",
    "abort",
    "accept",
    "accept4",
    "calloc",
    "clock_nanosleep",
    "clone",
    "clone3",
    "close",
    "connect",
    "epoll_pwait",
    "epoll_wait",
    "exit",
    "fdatasync",
    "free",
    "fsync",
    "getaddrinfo",
    "malloc",
    "memchr",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "nanosleep",
    "open",
    "openat",
    "operator delete",
    "operator delete[]",
    "operator new",
    "operator new[]",
    "poll",
    "posix_memalign",
    "ppoll",
    "pread64",
    "pthread_cond_wait",
    "pthread_create",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pwrite64",
    "qsort",
    "read",
    "realloc",
    "recv",
    "recvfrom",
    "recvmsg",
    "rust_begin_unwind",
    "rust_eh_personality",
    "rust_panic",
    "select",
    "send",
    "sendmsg",
    "sendto",
    "sleep",
    "start_thread",
    "strcmp",
    "strlen",
    "syscall",
    "usleep",
    "wait4",
    "waitpid",
    "write",
    "writev",
];

/// Functions of libraries and runtimes, by the first segment of their path.
fn foreign_function(name: &str, code: &CodePlace<'_>) -> bool {
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
fn foreign_module(path: &str) -> bool {
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
    // python3.11, pypy3, php8.2 — but not python-service or node_exporter.
    INTERPRETERS.iter().any(|interpreter| {
        name.strip_prefix(interpreter)
            .is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
    }) || name == "nodejs"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(function: &str, file: Option<&str>) -> bool {
        let code =
            CodePlace { function: Some(function), file, module: Some("/srv/app"), rust: true };
        UserCode::default().is_user(&code)
    }

    fn native(function: &str, module: &str) -> bool {
        let code =
            CodePlace { function: Some(function), module: Some(module), ..CodePlace::default() };
        UserCode::default().is_user(&code)
    }

    #[test]
    fn in_rust_the_first_segment_decides_without_a_source_path() {
        for name in [
            "app::main::{{closure}}",
            "<app::X as core::future::future::Future>::poll",
            "<&mut app::X<T> as core::future::future::Future>::poll",
            "<u8 as app::Checksum>::checksum",
            "<(A, B) as app::Pair>::swap",
            "<dyn app::Handler>::call",
            "app::handlers::<impl app::X>::go",
            "tokio_chat::serve",
            "futures_demo::run",
        ] {
            assert!(rust(name, None), "{name}");
        }
        for name in [
            "core::ops::function::FnOnce::call_once{{vtable.shim}}",
            "std::rt::lang_start::{{closure}}",
            "core::ptr::drop_in_place<app::X>",
            "<alloc::vec::Vec<app::X> as core::clone::Clone>::clone",
            "<alloc::boxed::Box<dyn app::F> as core::ops::function::FnOnce<()>>::call_once",
            "<u8 as core::fmt::Debug>::fmt",
            "<fn() as core::ops::function::FnOnce<()>>::call_once",
            "tokio::runtime::task::raw::poll",
            "futures_util::future::future::FutureExt::poll_unpin",
            "main",
            "_start",
            "__libc_start_main",
            "__rust_alloc",
            "memcpy",
            "read@plt",
        ] {
            assert!(!rust(name, None), "{name}");
        }
    }

    #[test]
    fn the_source_path_comes_first() {
        assert!(rust("poll<app::X>", Some("/home/me/app/src/main.rs")));
        assert!(rust("main", Some("/usr/src/app/src/main.c")));
        for file in [
            "/rustc/90b35a6239c3d8bdabc530a6a0816f7ff89a0aaf/library/core/src/ops/function.rs",
            "/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/serde_json-1.0.1/src/de.rs",
            "/usr/local/cargo/registry/src/index.crates.io-6f17d22bba15001f/tokio-1.40.0/src/lib.rs",
            "/root/.rustup/toolchains/stable/lib/rustlib/src/rust/library/std/src/rt.rs",
            "library/alloc/src/vec/mod.rs",
            "/usr/include/c++/12/bits/stl_vector.h",
            "/home/me/app/vendor/serde/src/lib.rs",
        ] {
            assert!(!rust("app::looks_like_the_users", Some(file)), "{file}");
        }
    }

    #[test]
    fn modules_decide_the_rest() {
        assert!(native("processCommand", "/usr/bin/redis-server"));
        assert!(native("ngx_process_events_and_timers", "/usr/sbin/nginx"));
        assert!(native("core::Engine::tick", "/opt/game/server"));
        assert!(native("(anonymous namespace)::spin", "/opt/app/server"));
        assert!(native("plugin_run", "/opt/app/libplugin.so.1"));
        assert!(native("spin", "/usr/bin/node_exporter"));
        for (name, module) in [
            ("epoll_wait", "/lib/x86_64-linux-gnu/libc.so.6"),
            ("read", "/opt/bundle/libc.so.6"),
            ("EVP_DigestUpdate", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"),
            ("inflate", "/usr/lib/x86_64-linux-gnu/libz.so.1.2.13"),
            ("node::fs::Read", "/usr/bin/node"),
            ("v8::internal::Execution::Call", "/opt/app/embedder"),
            ("uv__io_poll", "/opt/app/embedder"),
            ("_PyEval_EvalFrameDefault", "/usr/bin/python3.11"),
            ("PyObject_Call", "/opt/app/embedder"),
            ("dict_lookup", "/root/.pyenv/versions/3.11.7/bin/python3.11"),
            ("parse", "/srv/venv/lib/python3.11/site-packages/orjson/orjson.so"),
            ("std::vector<int>::push_back", "/opt/app/server"),
            ("__vdso_clock_gettime", "[vdso]"),
            ("do_sys_poll", "[kernel]"),
        ] {
            assert!(!native(name, module), "{name} in {module}");
        }
        assert!(!UserCode::default().is_user(&CodePlace::default()), "code of a JIT");
    }

    #[test]
    fn exceptions_win() {
        let rules = UserCode::default()
            .include("^tokio::")
            .and_then(|rules| rules.exclude("/generated/"))
            .expect("valid patterns");
        let code = CodePlace { module: Some("/srv/app"), rust: true, ..CodePlace::default() };
        assert!(rules.is_user(&CodePlace { function: Some("tokio::task::spawn"), ..code }));
        assert!(!rules.is_user(&CodePlace {
            function: Some("app::x"),
            file: Some("/srv/generated/x.rs"),
            ..code
        }));
        assert!(UserCode::default().include("(").is_err());
    }
}
