//! x86-64: where the arguments of blocking system calls lie, by number
//! (Linux `arch/x86/entry/syscalls/syscall_64.tbl`).

/// Nothing is known of its arguments.
pub const TAKES_NOTHING: u32 = 0;
/// A descriptor, first.
pub const TAKES_FD: u32 = 1;
/// A path, first.
pub const TAKES_PATH: u32 = 2;
/// A folder's descriptor and a path.
pub const TAKES_FOLDER_AND_PATH: u32 = 3;
/// A time to sleep, first.
pub const TAKES_TIME: u32 = 4;
/// A clock, flags and a time.
pub const TAKES_CLOCK_AND_TIME: u32 = 5;
/// A descriptor, an address and its length.
pub const TAKES_FD_AND_ADDRESS: u32 = 6;
/// A descriptor, and fifth an address and its length.
pub const TAKES_FD_AND_LATE_ADDRESS: u32 = 7;
/// A list of descriptors and its length.
pub const TAKES_FD_LIST: u32 = 8;
/// The number of descriptors and sets of them.
pub const TAKES_FD_SETS: u32 = 9;

/// What a system call's arguments mean: `TAKES_*`.
#[inline(always)]
#[must_use]
pub const fn takes(nr: i64) -> u32 {
    match nr {
        // read write fstat lseek ioctl pread64 pwrite64 readv writev sendfile accept recvfrom
        // sendmsg recvmsg shutdown
        0 | 1 | 5 | 8 | 16..=20 | 40 | 43 | 45..=48 => TAKES_FD,
        // close
        3 => TAKES_FD,
        // fcntl flock fsync fdatasync ftruncate getdents fchdir fchmod fchown fstatfs readahead
        72..=75 | 77 | 78 | 81 | 91 | 93 | 138 | 187 => TAKES_FD,
        // getdents64 fadvise64 epoll_wait splice tee sync_file_range vmsplice epoll_pwait fallocate
        // accept4 preadv pwritev recvmmsg syncfs sendmmsg copy_file_range preadv2 pwritev2
        // io_uring_enter epoll_pwait2
        217
        | 221
        | 232
        | 275..=278
        | 281
        | 285
        | 288
        | 295
        | 296
        | 299
        | 306
        | 307
        | 326..=328
        | 426
        | 441 => TAKES_FD,
        // open stat lstat access execve truncate chdir rename mkdir rmdir creat link unlink symlink
        // readlink chmod chown lchown utime mknod statfs umount2 setxattr.. utimes
        2
        | 4
        | 6
        | 21
        | 59
        | 76
        | 80
        | 82..=90
        | 92
        | 94
        | 132
        | 133
        | 137
        | 166
        | 188
        | 189
        | 191
        | 192
        | 194
        | 195
        | 235 => TAKES_PATH,
        // openat mkdirat mknodat fchownat newfstatat unlinkat renameat linkat readlinkat fchmodat
        // faccessat utimensat name_to_handle_at renameat2 execveat statx openat2 faccessat2
        257..=260 | 262..=265 | 267..=269 | 280 | 303 | 316 | 322 | 332 | 437 | 439 => {
            TAKES_FOLDER_AND_PATH
        }
        35 => TAKES_TIME,
        230 => TAKES_CLOCK_AND_TIME,
        // connect
        42 => TAKES_FD_AND_ADDRESS,
        // sendto
        44 => TAKES_FD_AND_LATE_ADDRESS,
        7 | 271 => TAKES_FD_LIST,
        23 | 270 => TAKES_FD_SETS,
        _ => TAKES_NOTHING,
    }
}

/// Whether a call ends the process or a thread of it.
#[inline(always)]
#[must_use]
pub const fn is_exit(nr: i64) -> bool {
    nr == 60 || nr == 231
}
