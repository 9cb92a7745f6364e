//! Which code is the user's own, and which is a library's, a runtime's or the system's.
//!
//! A report blames the innermost frame of the user's own code. With static linking and LTO all of
//! it lives in one executable, so the module alone decides nothing: the source path is asked first,
//! then the function's path, then the module.

use regex::Regex;

use super::foreign::{foreign_function, foreign_module, foreign_source};

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
            "/home/me/.cargo/registry/src/registry-0123456789abcdef/serde_json-1.0.1/src/de.rs",
            "/usr/local/cargo/registry/src/index.crates.io-6f17d22bba15001f/tokio-1.40.0/src/lib.rs",
            "/home/me/.rustup/toolchains/stable/lib/rustlib/src/rust/library/std/src/rt.rs",
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
            ("dict_lookup", "/home/me/.pyenv/versions/3.11.7/bin/python3.11"),
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
