//! Who kept a process from running, from outside of it. No I/O.

use std::time::Duration;

use profiler_common::waits::{Other, Waits};

use super::resource::task_name;
use super::verdict::Outside;
use crate::attach::cgroup::Quota;
use crate::stalls::Cause;
use crate::symbolize::printable;

fn limit(quota: &Quota) -> String {
    let [time, period] = [quota.quota_us, quota.period_us].map(Duration::from_micros);
    format!("cgroup {}, {time:?} per {period:?}", quota.group)
}

/// Who or what is to blame for a stall that no code is to blame for. `group` is the process's
/// frozen group, `quota` its limit, as far as they are known.
#[must_use]
pub fn outside(
    cause: Cause,
    waits: Option<&Waits>,
    group: Option<String>,
    quota: Option<&Quota>,
) -> Option<Outside> {
    let (what, who) = match cause {
        Cause::Runqueue => ("preempted", rivals(waits?)?),
        Cause::Throttled => ("cpu quota", limit(quota?)),
        Cause::Stopped => stopped(waits?, group)?,
        _ => return None,
    };
    Some(Outside { what, who: printable(&who).into_owned() })
}

/// Rivals that are named.
const MOST_RIVALS: usize = 4;

fn rivals(waits: &Waits) -> Option<String> {
    let mut rivals: Vec<_> =
        waits.rivals.iter().filter(|rival| rival.ns > 0 && rival.who.tgid != 0).collect();
    rivals.sort_by_key(|rival| std::cmp::Reverse(rival.ns));
    // Many short waits show many passers-by: those that mattered stand out.
    let most = rivals.first()?.ns;
    let names: Vec<_> = rivals
        .iter()
        .filter(|rival| rival.ns >= most / 8)
        .take(MOST_RIVALS)
        .map(|rival| by_name(&rival.who))
        .collect();
    Some(names.join(", "))
}

/// `stress (4711)`
fn by_name(who: &Other) -> String {
    let comm = who.comm.split(|&byte| byte == 0).next().unwrap_or_default();
    format!("{} ({})", String::from_utf8_lossy(comm), who.tgid)
}

fn stopped(waits: &Waits, group: Option<String>) -> Option<(&'static str, String)> {
    if waits.frozen != 0 {
        return Some(("freezer", format!("cgroup {}", group.as_deref().unwrap_or("unknown"))));
    }
    if waits.tracer.tgid != 0 {
        return Some(("ptrace", format!("pid {}", task_name(&waits.tracer))));
    }
    let what = match waits.stop_signal {
        19 => "SIGSTOP",
        20 => "SIGTSTP",
        21 => "SIGTTIN",
        22 => "SIGTTOU",
        _ => return None,
    };
    Some((what, format!("pid {}", task_name(&waits.stopper))))
}
