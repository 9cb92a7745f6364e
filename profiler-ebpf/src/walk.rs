//! From a directory entry up to the root that a thread sees: the names of a path.

use aya_ebpf::helpers::generated::bpf_probe_read_kernel_str;
use profiler_common::waits::{NAME_BYTES, Resource, WALKED_BYTES};

use crate::object::pointer;
use crate::task::Task;
use crate::waits::layout;

/// Folders and mounts that are followed.
const STEPS: usize = 64;

/// A directory entry, and the mount it is seen through.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) dentry: *const u8,
    pub(crate) mount: *const u8,
}

/// Puts the names from a place up to the thread's root into `resource.walked`.
#[inline(never)]
pub(crate) fn up(resource: &mut Resource, thread: Task, start: Place) {
    let fs = pointer(thread, layout!(task_fs));
    let root_dentry = pointer(fs, layout!(fs_root_dentry));
    let root_mount = pointer(fs, layout!(fs_root_mount));
    let (mut dentry, mut mount) = (start.dentry, start.mount);
    for _ in 0..STEPS {
        if dentry.is_null() || mount.is_null() {
            break;
        }
        if dentry == root_dentry && mount == root_mount {
            return;
        }
        let parent = pointer(dentry, layout!(dentry_parent));
        if parent != dentry {
            if !push(resource, dentry) {
                return;
            }
            dentry = parent;
            continue;
        }
        // The top of a file system: on in the folder that it is mounted on.
        let real = mount.wrapping_sub(layout!(mount_vfs) as usize);
        let above = pointer(real, layout!(mount_parent));
        if above == real || above.is_null() {
            break;
        }
        dentry = pointer(real, layout!(mount_point));
        mount = above.wrapping_add(layout!(mount_vfs) as usize);
    }
    // SAFETY: a valid reference; volatile because the loop wrote it so.
    let length = unsafe { core::ptr::read_volatile(&raw const resource.walked_len) };
    if length == 0 {
        resource.object.pseudo = 1;
        push(resource, start.dentry);
    }
}

/// Appends an entry's name. Its place is kept in memory, so that the verifier does not follow every
/// combination of lengths.
#[inline(always)]
fn push(resource: &mut Resource, dentry: *const u8) -> bool {
    // SAFETY: a valid reference.
    let length = unsafe { core::ptr::read_volatile(&raw const resource.walked_len) } as usize;
    if length >= WALKED_BYTES {
        return false;
    }
    let name = pointer(dentry, layout!(dentry_name));
    let to = (&raw mut resource.walked).cast::<u8>().wrapping_add(length & (WALKED_BYTES - 1));
    // SAFETY: the destination has room for a name after every place below `WALKED_BYTES`; the
    // source is checked by the helper.
    let copied = unsafe { bpf_probe_read_kernel_str(to.cast(), NAME_BYTES as u32, name.cast()) };
    if copied <= 0 {
        return false;
    }
    // SAFETY: a valid reference.
    unsafe {
        core::ptr::write_volatile(&raw mut resource.walked_len, length as u32 + copied as u32)
    };
    true
}
