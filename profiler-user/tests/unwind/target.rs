//! A child process that is stopped, looked at and killed on drop.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use object::{Object, ObjectSymbol};
use stallscope::binaries::ProcessMaps;
use stallscope::unwind::{Registers, UnwoundStack};

/// Compiles `stacks.c` once.
pub(crate) fn stacks_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unwind/stacks.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unwind-stacks");
        let status = Command::new("cc")
            .args(["-O2", "-fomit-frame-pointer", "-fno-builtin", "-fno-stack-protector"])
            .args(["-fcf-protection=none", "-pthread", "-Wl,-z,lazy", "-o"])
            .arg(&program)
            .arg(source)
            .status()
            .expect("cc runs");
        assert!(status.success(), "stacks.c compiles");
        program
    })
}

pub(crate) struct Target {
    child: Child,
    /// The thread that is traced.
    tid: i32,
    traced: bool,
}

impl Drop for Target {
    fn drop(&mut self) {
        // A child that is gone already needs no killing.
        let _ = self.child.kill();
        if i32::try_from(self.child.id()) != Ok(self.tid) {
            // The process stays until its tracer has seen the end of the traced thread.
            // SAFETY: no status is asked for.
            unsafe { libc::waitpid(self.tid, std::ptr::null_mut(), libc::__WALL) };
        }
        let _ = self.child.wait();
    }
}

impl Target {
    /// Starts a program and waits until it prints a line.
    pub(crate) fn start(command: &mut Command) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let tid = i32::try_from(child.id()).expect("a pid");
        let mut target = Self { child, tid, traced: false };
        let stdout = target.child.stdout.take().expect("piped");
        let mut line = String::new();
        let mut reader = BufReader::new(stdout);
        reader.read_line(&mut line).expect("the program says that it is ready");
        assert!(!line.is_empty(), "the program ended early");
        target.child.stdout = Some(reader.into_inner());
        target
    }

    pub(crate) fn stacks(shape: &str) -> Self {
        Self::start(Command::new(stacks_program()).arg(shape))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Looks at another thread than the main one: the newest.
    pub(crate) fn newest_thread(mut self) -> Self {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("tasks");
        let newest = tasks.filter_map(|t| t.ok()?.file_name().to_str()?.parse().ok()).max();
        self.tid = newest.expect("a thread");
        self
    }

    fn ptrace(&self, request: libc::c_uint, data: *mut libc::c_void) -> libc::c_long {
        // SAFETY: the requests used here write through `data` only for GETREGS, which gets a
        // `user_regs_struct`.
        let result = unsafe { libc::ptrace(request, self.tid, 0, data) };
        assert!(result >= 0, "ptrace {request:#x}: {}", std::io::Error::last_os_error());
        result
    }

    fn wait_stopped(&self) {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        let result = unsafe { libc::waitpid(self.tid, &raw mut status, libc::__WALL) };
        assert!(result == self.tid && libc::WIFSTOPPED(status), "stopped: {status:#x}");
    }

    /// Stops the thread, wherever it is.
    pub(crate) fn stop(&mut self) {
        if !self.traced {
            self.ptrace(libc::PTRACE_SEIZE, std::ptr::null_mut());
            self.traced = true;
        }
        self.ptrace(libc::PTRACE_INTERRUPT, std::ptr::null_mut());
        self.wait_stopped();
    }

    /// Lets the stopped thread run on.
    pub(crate) fn run_on(&self) {
        self.ptrace(libc::PTRACE_CONT, std::ptr::null_mut());
    }

    /// Executes one instruction of the stopped thread.
    pub(crate) fn single_step(&self) {
        self.ptrace(libc::PTRACE_SINGLESTEP, std::ptr::null_mut());
        self.wait_stopped();
    }

    pub(crate) fn maps(&self) -> ProcessMaps {
        ProcessMaps::read(self.pid()).expect("maps")
    }

    pub(crate) fn registers(&self) -> Registers {
        let mut words = [0_u64; 27];
        const { assert!(size_of::<libc::user_regs_struct>() == 27 * 8) };
        self.ptrace(libc::PTRACE_GETREGS, words.as_mut_ptr().cast());
        Registers::from_pt_regs(words.first_chunk().expect("27 words"))
    }

    /// The memory from the stack pointer up, at most `limit` bytes.
    pub(crate) fn copy_stack(&self, maps: &ProcessMaps, sp: u64, limit: u64) -> StackCopy {
        let end = maps.find(sp).expect("the stack is mapped").end.min(sp + limit);
        let mut bytes = vec![0; usize::try_from(end - sp).expect("fits")];
        self.memory().read_exact_at(&mut bytes, sp).expect("the stack is readable");
        StackCopy { start: sp, bytes }
    }

    pub(crate) fn memory(&self) -> std::fs::File {
        std::fs::File::open(format!("/proc/{}/mem", self.pid())).expect("memory")
    }
}

/// A captured stack.
pub(crate) struct StackCopy {
    start: u64,
    bytes: Vec<u8>,
}

impl StackCopy {
    pub(crate) fn read(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// Waits until `condition` holds.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "did not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The names of the test program's own functions in a stack, leaf first; `?` for others.
pub(crate) fn names(stack: &UnwoundStack, maps: &ProcessMaps) -> Vec<String> {
    let program = stacks_program();
    let data = std::fs::read(program).expect("readable");
    let elf = object::File::parse(&*data).expect("an ELF file");
    let base = maps
        .all()
        .iter()
        .find(|m| m.path.ends_with("unwind-stacks") && m.offset == 0)
        .expect("mapped")
        .start;
    let name = |lookup: u64| {
        let address = lookup.checked_sub(base)?;
        let symbol =
            elf.symbols().find(|s| (s.address()..s.address() + s.size()).contains(&address))?;
        Some(symbol.name().ok()?.to_owned())
    };
    stack.frames.iter().map(|f| name(f.lookup).unwrap_or_else(|| "?".to_owned())).collect()
}
