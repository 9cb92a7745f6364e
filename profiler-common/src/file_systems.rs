//! Kinds of file systems: what the reader or the writer of a file waits for.

/// Magic number (`super_block.s_magic`; most stand in Linux `include/uapi/linux/magic.h`) and name.
/// ext2, ext3 and ext4 share a number.
const KINDS: [(u64, &str); 14] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0xf2f5_2010, "f2fs"),
    (0xca45_1a4e, "bcachefs"),
    (0x2fc1_2fc1, "zfs"),
    (0x6969, "nfs"),
    (0x00c3_6400, "ceph"),
    (0xfe53_4d42, "smb"),
    (0xff53_4d42, "smb"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
    (0x794c_7630, "overlayfs"),
    (0x0102_1994, "tmpfs"),
];

/// The name of a kind, by its magic number.
#[must_use]
pub fn name(magic: u64) -> Option<&'static str> {
    KINDS.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

/// The magic number of a kind, by the name that `/proc/PID/mountinfo` gives it; 0 if it is not known.
#[must_use]
pub fn magic(mounted_as: &str) -> u64 {
    // `fuse.sshfs`: the rest is a program's own name.
    let kind = mounted_as.split('.').next().unwrap_or_default();
    let kind = match kind {
        "ext2" | "ext3" => "ext4",
        "nfs4" => "nfs",
        "cifs" | "smb3" => "smb",
        "overlay" => "overlayfs",
        "fuseblk" => "fuse",
        other => other,
    };
    KINDS.iter().find(|(_, name)| *name == kind).map_or(0, |(number, _)| *number)
}

#[cfg(test)]
mod tests {
    use super::{magic, name};

    #[test]
    fn a_kind_has_one_name_however_it_is_mounted() {
        assert_eq!(name(magic("fuse.sshfs")), Some("fuse"));
        assert_eq!(name(magic("nfs4")), Some("nfs"));
        assert_eq!(name(magic("ext3")), Some("ext4"));
        assert_eq!((magic("proc"), name(0)), (0, None));
    }
}
