//! Control groups: where a process is, and how much CPU time its groups may have.

use std::fs;
use std::path::{Path, PathBuf};

/// A limit of a control group to CPU time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// The group, as its members see it.
    pub group: String,
    /// CPU time in each period.
    pub quota_us: u64,
    /// The period.
    pub period_us: u64,
}

/// The group of a process that a controller (`cpu`, `freezer`) acts on: `None` for the root.
#[must_use]
pub fn group(pid: u32, controller: &str) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let (path, _) = find(&groups, controller);
    path.filter(|path| path != "/")
}

/// The narrowest limit on CPU time that a process is under, from its own group up to the root.
#[must_use]
pub fn quota(pid: u32) -> Option<Quota> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    [true, false].into_iter().filter_map(|old| narrowest(&groups, &mounts, old)).min_by(by_share)
}

fn by_share(one: &Quota, two: &Quota) -> std::cmp::Ordering {
    let cross = |a: &Quota, b: &Quota| u128::from(a.quota_us) * u128::from(b.period_us);
    cross(one, two).cmp(&cross(two, one))
}

fn narrowest(groups: &str, mounts: &str, old: bool) -> Option<Quota> {
    let (own, unified) = (line(groups, Some("cpu")), line(groups, None));
    let path = if old { own? } else { unified? };
    let (point, root) = mount(mounts, old)?;
    let below = path.strip_prefix(root.trim_end_matches('/'))?;
    let folder = Path::new(&point);
    let mut group = PathBuf::from(below.trim_start_matches('/'));
    let mut found: Option<Quota> = None;
    loop {
        let name = format!("/{}", group.display());
        if let Some((quota_us, period_us)) = limit(&folder.join(&group), old) {
            let quota = Quota { group: name, quota_us, period_us };
            if found.as_ref().is_none_or(|known| by_share(&quota, known).is_lt()) {
                found = Some(quota);
            }
        }
        if !group.pop() {
            return found;
        }
    }
}

fn limit(folder: &Path, old: bool) -> Option<(u64, u64)> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let number = |text: &str| text.trim().parse::<u64>().ok();
    if old {
        // A limit that is not set reads -1.
        return Some((number(&read("cpu.cfs_quota_us")?)?, number(&read("cpu.cfs_period_us")?)?));
    }
    let max = read("cpu.max")?;
    let (quota, period) = max.trim().split_once(' ')?;
    Some((number(quota)?, number(period)?))
}

/// The path that a controller's hierarchy, or the unified one, has in `/proc/PID/cgroup`.
fn line(groups: &str, controller: Option<&str>) -> Option<String> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let matches = match controller {
            Some(name) => controllers.split(',').any(|one| one == name),
            None => number == "0" && controllers.is_empty(),
        };
        matches.then(|| path.to_owned())
    })
}

fn find(groups: &str, controller: &str) -> (Option<String>, bool) {
    match line(groups, Some(controller)) {
        Some(path) => (Some(path), true),
        None => (line(groups, None), false),
    }
}

/// Where the hierarchy is mounted, and which of its groups is on top there.
fn mount(mounts: &str, old: bool) -> Option<(String, String)> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let matches = if old {
            kind == "cgroup" && options.split(',').any(|option| option == "cpu")
        } else {
            kind == "cgroup2"
        };
        matches.then(|| (point.to_owned(), root.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: &str = "9:name=systemd:/\n4:cpu,cpuacct:/app/one\n0::/slice\n";
    const MOUNTS: &str = "30 20 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                          31 20 0:27 /slice /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn both_kinds_of_hierarchies_are_found() {
        assert_eq!(line(GROUPS, Some("cpu")).as_deref(), Some("/app/one"));
        assert_eq!(line(GROUPS, None).as_deref(), Some("/slice"));
        assert_eq!(find(GROUPS, "freezer"), (Some("/slice".to_owned()), false));
        let (point, root) = mount(MOUNTS, true).expect("the old one");
        assert_eq!((&*point, &*root), ("/sys/fs/cgroup/cpu", "/"));
        let (point, root) = mount(MOUNTS, false).expect("the unified one");
        assert_eq!((&*point, &*root), ("/sys/fs/cgroup/unified", "/slice"));
    }

    #[test]
    fn the_smaller_share_is_the_narrower_one() {
        let quota = |quota_us, period_us| Quota { group: String::new(), quota_us, period_us };
        assert!(by_share(&quota(20, 100), &quota(30, 100)).is_lt());
        assert!(by_share(&quota(20, 50), &quota(30, 100)).is_gt());
    }
}
