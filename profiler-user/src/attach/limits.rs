//! Limits of stallscope's own process.

/// Before Linux 5.11 the memory of maps counts as locked memory. Failing is harmless on newer
/// kernels, and on older ones making the maps fails with a clear error.
pub(super) fn raise_locked_memory() {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer is to a valid structure for the duration of the call.
    let _ = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
}

/// Keeps this thread on one CPU until it is dropped.
#[derive(Debug)]
pub struct Pinned {
    before: libc::cpu_set_t,
}

impl Pinned {
    /// Moves this thread to a CPU; `None` if it may not run there.
    #[must_use]
    pub fn to(cpu: usize) -> Option<Self> {
        if cpu >= libc::CPU_SETSIZE as usize {
            return None;
        }
        // SAFETY: a set of bits, for which zero is valid.
        let (mut before, mut wanted): (libc::cpu_set_t, libc::cpu_set_t) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let size = size_of::<libc::cpu_set_t>();
        // SAFETY: the pointers are to sets of the size given; `cpu` is below their number of bits.
        unsafe {
            if libc::sched_getaffinity(0, size, &raw mut before) != 0 {
                return None;
            }
            libc::CPU_SET(cpu, &mut wanted);
            (libc::sched_setaffinity(0, size, &raw const wanted) == 0).then_some(Self { before })
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the set is the one that the kernel gave.
        unsafe {
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.before);
        }
    }
}
