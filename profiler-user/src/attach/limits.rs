//! Limits of stallscope's own process.

/// Before Linux 5.11 the memory of maps counts as locked memory. Failing is harmless on newer
/// kernels, and on older ones making the maps fails with a clear error.
pub(super) fn raise_locked_memory() {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer is to a valid structure for the duration of the call.
    let _ = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
}
