//! Which capabilities this process has and lacks.

/// A capability that stallscope needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    /// Its name in capabilities(7).
    pub name: &'static str,
    /// What it is needed for.
    pub purpose: &'static str,
    bit: u32,
}

const SYS_ADMIN: u32 = 21;

/// Everything that is needed. `CAP_SYS_ADMIN` stands in for the two newer ones (Linux 5.8).
const NEEDED: [Capability; 4] = [
    Capability { name: "CAP_BPF", purpose: "loading the kernel programs", bit: 39 },
    Capability { name: "CAP_PERFMON", purpose: "tracing programs and samples", bit: 38 },
    Capability {
        name: "CAP_SYS_PTRACE",
        purpose: "reading mappings and files of other users' processes",
        bit: 19,
    },
    Capability {
        name: "CAP_SYS_ADMIN",
        purpose: "type information and iterators by id",
        bit: SYS_ADMIN,
    },
];

/// The needed capabilities that this process lacks.
#[must_use]
pub fn missing() -> Vec<Capability> {
    missing_of(effective())
}

/// All needed capabilities, and whether each is there.
#[must_use]
pub fn all() -> Vec<(Capability, bool)> {
    let effective = effective();
    let missing = missing_of(effective);
    NEEDED.iter().map(|&needed| (needed, !missing.contains(&needed))).collect()
}

fn missing_of(effective: u64) -> Vec<Capability> {
    let has = |bit: u32| effective >> bit & 1 != 0;
    NEEDED
        .into_iter()
        .filter(|needed| {
            let covered = needed.bit > 37 && has(SYS_ADMIN);
            !has(needed.bit) && !covered
        })
        .collect()
}

fn effective() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let names = |effective| missing_of(effective).iter().map(|c| c.name).collect::<Vec<_>>();
        assert_eq!(names(0), ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_SYS_ADMIN"]);
        assert_eq!(names(u64::MAX), [""; 0]);
        assert_eq!(names(1 << SYS_ADMIN), ["CAP_SYS_PTRACE"]);
    }
}
