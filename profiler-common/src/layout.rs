//! Where the fields of kernel structures lie, for following a thread's descriptors and groups.
//!
//! One list for both sides: user space fills it from the running kernel's type information. What a
//! kernel does not have is [`ABSENT`], and what needs it is then left out.

/// The running kernel has no such field.
pub const ABSENT: u32 = u32::MAX;

macro_rules! layout {
    ($($name:ident: $structure:literal, $field:literal;)+) => {
        /// Byte offsets of fields.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Layout {
            $(#[doc = concat!("`", $structure, ".", $field, "`")] pub $name: u32,)+
        }

        impl Layout {
            /// Nothing is known.
            pub const UNKNOWN: Self = Self { $($name: ABSENT,)+ };

            /// Asks for each field; `None` for one that does not exist.
            #[must_use]
            pub fn new(offset: impl Fn(&'static str, &'static str) -> Option<u32>) -> Self {
                Self { $($name: offset($structure, $field).unwrap_or(ABSENT),)+ }
            }
        }
    };
}

layout! {
    task_comm: "task_struct", "comm";
    task_flags: "task_struct", "flags";
    task_files: "task_struct", "files";
    task_fs: "task_struct", "fs";
    task_parent: "task_struct", "parent";
    task_pid: "task_struct", "thread_pid";
    pid_level: "pid", "level";
    task_real_parent: "task_struct", "real_parent";
    task_group: "task_struct", "sched_task_group";
    group_parent: "task_group", "parent";
    group_throttled_ns: "task_group", "cfs_bandwidth.throttled_time";
    files_table: "files_struct", "fdt";
    table_max: "fdtable", "max_fds";
    table_files: "fdtable", "fd";
    file_dentry: "file", "f_path.dentry";
    file_mount: "file", "f_path.mnt";
    file_inode: "file", "f_inode";
    file_private: "file", "private_data";
    task_memory: "task_struct", "mm";
    fault_address: "vm_fault", "address";
    mapping_memory: "vm_area_struct", "vm_mm";
    mapping_start: "vm_area_struct", "vm_start";
    mapping_end: "vm_area_struct", "vm_end";
    mapping_file: "vm_area_struct", "vm_file";
    epoll_ready: "eventpoll", "rdllist";
    item_link: "epitem", "rdllink";
    item_file: "epitem", "ffd.file";
    item_events: "epitem", "event.events";
    fs_root_dentry: "fs_struct", "root.dentry";
    fs_root_mount: "fs_struct", "root.mnt";
    fs_pwd_dentry: "fs_struct", "pwd.dentry";
    fs_pwd_mount: "fs_struct", "pwd.mnt";
    dentry_parent: "dentry", "d_parent";
    dentry_name: "dentry", "d_name.name";
    mount_vfs: "mount", "mnt";
    mount_parent: "mount", "mnt_parent";
    mount_point: "mount", "mnt_mountpoint";
    inode_mode: "inode", "i_mode";
    inode_number: "inode", "i_ino";
    inode_device: "inode", "i_rdev";
    inode_super: "inode", "i_sb";
    super_magic: "super_block", "s_magic";
    socket_sock: "socket", "sk";
    sock_type: "sock", "sk_type";
    sock_protocol: "sock", "sk_protocol";
    sock_peer_pid: "sock", "sk_peer_pid";
    sock_receive_length: "sock", "sk_receive_queue.qlen";
    sock_accept_first: "inet_connection_sock", "icsk_accept_queue.rskq_accept_head";
    sock_family: "sock_common", "skc_family";
    sock_state: "sock_common", "skc_state";
    sock_peer_port: "sock_common", "skc_dport";
    sock_own_port: "sock_common", "skc_num";
    sock_peer_v4: "sock_common", "skc_daddr";
    sock_own_v4: "sock_common", "skc_rcv_saddr";
    sock_peer_v6: "sock_common", "skc_v6_daddr";
    sock_own_v6: "sock_common", "skc_v6_rcv_saddr";
    unix_address: "unix_sock", "addr";
    unix_peer: "unix_sock", "peer";
    unix_address_len: "unix_address", "len";
    unix_address_name: "unix_address", "name";
    pid_numbers: "pid", "numbers";
    upid_number: "upid", "nr";
}

const _: () = assert!(size_of::<Layout>().is_multiple_of(4));
