//! `python-offsets`: where the fields of CPython's structures lie, asked of gdb for real builds
//! with debug information. Versions from 3.13 on tell it themselves (`_Py_DebugOffsets`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{commands, source_tree};

/// The table that the profiler is built with.
const TABLE: &str = "profiler-user/src/runtimes/python/offsets.json";

#[derive(Args)]
pub(crate) struct Options {
    /// `VERSION=FILE`: a version such as 3.11 and a libpython or an interpreter of it that has
    /// debug information; with its `_asyncio` module after a comma
    #[arg(required = true)]
    builds: Vec<String>,
}

/// Name in the table, and the expressions that may give it; the first that gdb understands counts.
const FIELDS: &[(&str, &[&str])] = &[
    ("interpreters_head", &["&((_PyRuntimeState*)0)->interpreters.head"]),
    ("interp_next", &["&((PyInterpreterState*)0)->next"]),
    (
        "interp_threads",
        &["&((PyInterpreterState*)0)->threads.head", "&((PyInterpreterState*)0)->tstate_head"],
    ),
    (
        "interp_modules",
        &["&((PyInterpreterState*)0)->imports.modules", "&((PyInterpreterState*)0)->modules"],
    ),
    ("interp_gil", &["&((PyInterpreterState*)0)->ceval.gil"]),
    ("runtime_gil", &["&((_PyRuntimeState*)0)->ceval.gil"]),
    ("interp_gc_collecting", &["&((PyInterpreterState*)0)->gc.collecting"]),
    ("runtime_gc_collecting", &["&((_PyRuntimeState*)0)->gc.collecting"]),
    ("gil_last_holder", &["&((struct _gil_runtime_state*)0)->last_holder"]),
    ("gil_locked", &["&((struct _gil_runtime_state*)0)->locked"]),
    ("gil_bytes", &["sizeof(struct _gil_runtime_state)"]),
    ("thread_prev", &["&((PyThreadState*)0)->prev"]),
    ("thread_next", &["&((PyThreadState*)0)->next"]),
    ("thread_interp", &["&((PyThreadState*)0)->interp"]),
    ("thread_id", &["&((PyThreadState*)0)->thread_id"]),
    (
        "thread_frame",
        &[
            "&((PyThreadState*)0)->frame",
            "&((PyThreadState*)0)->cframe",
            "&((PyThreadState*)0)->current_frame",
        ],
    ),
    ("cframe_frame", &["&((_PyCFrame*)0)->current_frame"]),
    ("frame_previous", &["&((_PyInterpreterFrame*)0)->previous", "&((PyFrameObject*)0)->f_back"]),
    (
        "frame_code",
        &[
            "&((_PyInterpreterFrame*)0)->f_code",
            "&((_PyInterpreterFrame*)0)->f_executable",
            "&((PyFrameObject*)0)->f_code",
        ],
    ),
    (
        "frame_instr",
        &[
            "&((_PyInterpreterFrame*)0)->prev_instr",
            "&((_PyInterpreterFrame*)0)->instr_ptr",
            "&((PyFrameObject*)0)->f_lasti",
        ],
    ),
    ("frame_mark", &["&((_PyInterpreterFrame*)0)->is_entry", "&((_PyInterpreterFrame*)0)->owner"]),
    (
        "frame_locals",
        &["&((_PyInterpreterFrame*)0)->localsplus", "&((PyFrameObject*)0)->f_localsplus"],
    ),
    ("code_filename", &["&((PyCodeObject*)0)->co_filename"]),
    ("code_name", &["&((PyCodeObject*)0)->co_name"]),
    ("code_qualname", &["&((PyCodeObject*)0)->co_qualname"]),
    ("code_first_line", &["&((PyCodeObject*)0)->co_firstlineno"]),
    ("code_flags", &["&((PyCodeObject*)0)->co_flags"]),
    ("code_lines", &["&((PyCodeObject*)0)->co_linetable", "&((PyCodeObject*)0)->co_lnotab"]),
    ("code_bytes", &["&((PyCodeObject*)0)->co_code_adaptive"]),
    ("unicode_length", &["&((PyASCIIObject*)0)->length"]),
    ("unicode_state", &["&((PyASCIIObject*)0)->state"]),
    ("unicode_ascii", &["sizeof(PyASCIIObject)"]),
    ("unicode_compact", &["sizeof(PyCompactUnicodeObject)"]),
    ("bytes_size", &["&((PyVarObject*)0)->ob_size"]),
    ("bytes_data", &["&((PyBytesObject*)0)->ob_sval"]),
    ("type_name", &["&((PyTypeObject*)0)->tp_name"]),
    ("dict_keys", &["&((PyDictObject*)0)->ma_keys"]),
    ("keys_entries", &["&((PyDictKeysObject*)0)->dk_nentries"]),
    ("keys_indices", &["&((PyDictKeysObject*)0)->dk_indices"]),
    ("task_name", &["&((TaskObj*)0)->task_name"]),
    ("task_coro", &["&((TaskObj*)0)->task_coro"]),
];

pub(crate) fn run(options: &Options) -> Result<()> {
    commands::require(&[("gdb", "gdb")])?;
    let path = source_tree::root().join(TABLE);
    let mut table: BTreeMap<String, BTreeMap<String, u64>> = match std::fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).context("the table that is there")?,
        Err(_) => BTreeMap::new(),
    };
    for build in &options.builds {
        let (version, files) = build.split_once('=').context("VERSION=FILE[,FILE]")?;
        let mut offsets = BTreeMap::new();
        for file in files.split(',') {
            ask(&PathBuf::from(file), &mut offsets)?;
        }
        for required in ["thread_next", "frame_code", "code_lines"] {
            if !offsets.contains_key(required) {
                bail!("{files} does not know {required}: has it debug information?");
            }
        }
        table.insert(version.to_owned(), offsets);
    }
    let mut text = serde_json::to_string_pretty(&table)?;
    text.push('\n');
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

/// One line of output for each expression: `MARK=NAME=VALUE`. gdb goes on after an error in a
/// command of its own (`-ex`), and says nothing on stdout then.
fn ask(file: &PathBuf, offsets: &mut BTreeMap<String, u64>) -> Result<()> {
    let mut gdb = Command::new("gdb");
    gdb.args(["--batch", "-nx"]).arg(file);
    for (name, expressions) in FIELDS {
        for expression in *expressions {
            gdb.arg("-ex").arg(format!("printf \"@{name}=%lu\\n\", (unsigned long)({expression})"));
        }
    }
    let said = gdb.output().context("gdb")?;
    for line in String::from_utf8_lossy(&said.stdout).lines() {
        if let Some((name, value)) = line.strip_prefix('@').and_then(|l| l.split_once('='))
            && let Ok(value) = value.parse()
        {
            offsets.entry(name.to_owned()).or_insert(value);
        }
    }
    Ok(())
}
