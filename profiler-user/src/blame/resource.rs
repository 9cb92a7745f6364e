//! What a system call waited for, in words. No I/O: who is who is asked from the caller.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use profiler_common::arch::{
    TAKES_CLOCK_AND_TIME, TAKES_FD_AND_ADDRESS, TAKES_FD_AND_LATE_ADDRESS, TAKES_FD_LIST,
    TAKES_FOLDER_AND_PATH, TAKES_PATH, TAKES_TIME, is_exit, takes,
};
use profiler_common::waits::{
    Object, Other, Resource, WAKER_CHILD, WAKER_EXITS, WAKER_KERNEL, Waker,
};

use crate::symbolize::printable;

/// `S_IFMT` and its values.
const TYPE: u32 = 0o170_000;
const SOCKET: u32 = 0o140_000;
const FIFO: u32 = 0o010_000;
const CHARACTERS: u32 = 0o020_000;
/// `PIPEFS_MAGIC`
const PIPES: u64 = 0x5049_5045;
const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const STREAM: u16 = 1;

/// What a system call waited for; `None` where nothing is known.
#[must_use]
pub fn resource_text(resource: &Resource, call: &str) -> Option<String> {
    let given = used(&resource.given, resource.given_len);
    let text = match takes(i64::from(resource.nr)) {
        TAKES_PATH | TAKES_FOLDER_AND_PATH => path_given(resource, given)?,
        TAKES_TIME => requested(given, 0)?,
        TAKES_CLOCK_AND_TIME => clock_time(resource, given)?,
        class => match call {
            "wait4" | "waitid" => child(resource)?,
            _ => {
                let mut text = object(resource, class, given)?;
                if class == TAKES_FD_LIST && resource.args[1] > 1 {
                    text.push_str(&format!(" and {} more", resource.args[1] - 1));
                }
                text
            }
        },
    };
    Some(printable(&text).into_owned())
}

/// Whether a resource is a name server.
#[must_use]
pub fn is_name_server(resource: &str) -> bool {
    let socket = resource.starts_with("udp ") || resource.starts_with("tcp ");
    let address = resource.split(" and ").next().unwrap_or_default();
    socket && address.contains(" -> ") && address.ends_with(":53")
}

fn used(bytes: &[u8], length: u32) -> &[u8] {
    &bytes[..(length as usize).min(bytes.len())]
}

fn terminated(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Names from the innermost on, as a path.
fn walked(resource: &Resource) -> String {
    let bytes = used(&resource.walked, resource.walked_len);
    let names: Vec<_> = bytes.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
    // Behind the last name's end there is one more piece, which is empty.
    let names = &names[..names.len().saturating_sub(1)];
    names.iter().rev().fold(String::new(), |path, name| path + "/" + name)
}

fn path_given(resource: &Resource, given: &[u8]) -> Option<String> {
    let path = String::from_utf8_lossy(terminated(given));
    let folder = (resource.walked_len > 0).then(|| walked(resource));
    match (path.as_ref(), folder) {
        ("", None) => None,
        ("", Some(folder)) => Some(folder),
        (path, _) if path.starts_with('/') => Some(path.to_owned()),
        (path, Some(folder)) => Some(format!("{folder}/{}", path.trim_start_matches("./"))),
        (path, None) => Some(path.to_owned()),
    }
}

fn seconds_and_nanoseconds(given: &[u8]) -> Option<u64> {
    let number =
        |at: usize| given.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    number(0)?.checked_mul(1_000_000_000)?.checked_add(number(8)?)
}

fn requested(given: &[u8], since_ns: u64) -> Option<String> {
    let ns = seconds_and_nanoseconds(given)?.checked_sub(since_ns)?;
    Some(format!("{:?} asked for", Duration::from_nanos(ns)))
}

/// A sleep on a clock: for a time, or until one.
fn clock_time(resource: &Resource, given: &[u8]) -> Option<String> {
    const MONOTONIC: u64 = 1;
    const ABSOLUTE: u64 = 1;
    if resource.args[1] & ABSOLUTE == 0 {
        return requested(given, 0);
    }
    let woken = resource.waker.time_ns;
    // Of other clocks it is not known what they showed when the sleep began.
    let began = woken.checked_sub(resource.slept_ns)?;
    (resource.args[0] == MONOTONIC && woken > 0).then(|| requested(given, began))?
}

fn child(resource: &Resource) -> Option<String> {
    let waker = &resource.waker;
    if waker.flags & WAKER_EXITS != 0 && waker.flags & WAKER_CHILD != 0 {
        return Some(format!("child {}", task_name(&waker.who)));
    }
    let asked = resource.args[0].cast_signed() as i32;
    (resource.nr != WAITID && asked > 0).then(|| format!("child {asked}"))
}

/// `waitid`, whose first argument is no process.
const WAITID: i32 = 247;

/// `4711 (sleep)`
#[must_use]
pub fn task_name(who: &Other) -> String {
    format!("{} ({})", who.tgid, comm(who))
}

fn comm(who: &Other) -> Cow<'_, str> {
    String::from_utf8_lossy(terminated(&who.comm))
}

fn object(resource: &Resource, class: u32, given: &[u8]) -> Option<String> {
    let object = &resource.object;
    match object.mode & TYPE {
        0 if object.pseudo == 0 => None,
        SOCKET => {
            let to = match class {
                TAKES_FD_AND_ADDRESS | TAKES_FD_AND_LATE_ADDRESS => given,
                _ => &[],
            };
            Some(socket(resource, to))
        }
        FIFO if object.magic == PIPES => {
            Some(with_other_end(format!("pipe {}", object.inode), resource))
        }
        FIFO => Some(with_other_end(format!("fifo {}", walked(resource)), resource)),
        _ if object.pseudo != 0 => {
            let name = anonymous(&walked(resource));
            Some(locked(&name, resource).unwrap_or_else(|| with_other_end(name, resource)))
        }
        CHARACTERS if is_terminal(object.device) => Some(format!("tty {}", walked(resource))),
        _ => {
            let path = walked(resource);
            let path = if path.is_empty() { "/".to_owned() } else { path };
            let on = profiler_common::file_systems::name(object.magic)
                .map(|name| format!("{path} on {name}"));
            Some(locked(&path, resource).unwrap_or_else(|| on.unwrap_or(path)))
        }
    }
}

/// The file with the process whose lock on it was waited for.
fn locked(name: &str, resource: &Resource) -> Option<String> {
    let holder = other_end(&resource.waker).filter(|_| is_file_lock(resource))?;
    Some(format!("{name} locked by {holder}"))
}

/// `flock`, and `fcntl` with a command that waits.
fn is_file_lock(resource: &Resource) -> bool {
    const FLOCK: i32 = 73;
    const FCNTL: i32 = 72;
    const WAITING: [u64; 2] = [7, 38];
    resource.nr == FLOCK || (resource.nr == FCNTL && WAITING.contains(&resource.args[1]))
}

/// `eventfd` of `/[eventfd]`, `memfd:name` of `/memfd:name`.
fn anonymous(path: &str) -> String {
    let name = path.trim_start_matches('/');
    let name = name.strip_prefix("anon_inode:").unwrap_or(name);
    let name = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    if name == "eventpoll" { "epoll".to_owned() } else { name.to_owned() }
}

/// Major numbers of terminals: consoles, `/dev/tty`, and pseudo terminals.
const fn is_terminal(device: u32) -> bool {
    // As the kernel keeps it: 20 bits of minor number.
    matches!(device >> 20, 2..=5 | 128..=143 | 204)
}

/// Who ended the sleep, if that can only have been the other end: another process in a system call
/// of its own.
fn other_end(waker: &Waker) -> Option<String> {
    const SIGNALS: [i32; 6] = [62, 129, 200, 234, 297, 424];
    let itself = waker.time_ns > 0
        && waker.flags & WAKER_KERNEL == 0
        && waker.nr >= 0
        && !SIGNALS.contains(&waker.nr);
    let plausible = is_exit(i64::from(waker.nr)) || takes(i64::from(waker.nr)) != 0;
    (itself && plausible).then(|| format!("pid {}", task_name(&waker.who)))
}

fn with_other_end(text: String, resource: &Resource) -> String {
    match other_end(&resource.waker) {
        Some(other) if resource.waker.who.tgid != resource.header.tgid => {
            format!("{text}, other end {other}")
        }
        Some(_) if resource.waker.who.tid != resource.header.tid => {
            let who = &resource.waker.who;
            format!("{text}, other end thread {} ({})", who.tid, comm(who))
        }
        _ => text,
    }
}

fn socket(resource: &Resource, given: &[u8]) -> String {
    let object = &resource.object;
    match object.family {
        AF_INET | AF_INET6 => internet(object, given),
        AF_UNIX => unix(resource, given),
        other => format!("socket of family {other}"),
    }
}

fn internet(object: &Object, given: &[u8]) -> String {
    const TCP: u16 = 6;
    const UDP: u16 = 17;
    let kind = match object.protocol {
        TCP => "tcp".to_owned(),
        UDP => "udp".to_owned(),
        other => format!("ip protocol {other}"),
    };
    let own = address(object.family, &object.own, object.own_port);
    let peer = if object.peer_port != 0 {
        Some(address(object.family, &object.peer, object.peer_port))
    } else {
        given_address(given)
    };
    match (object.own_port, peer) {
        (0, Some(peer)) => format!("{kind} -> {peer}"),
        (_, Some(peer)) => format!("{kind} {own} -> {peer}"),
        (_, None) => format!("{kind} {own}"),
    }
}

fn address(family: u16, bytes: &[u8; 16], port: u16) -> SocketAddr {
    let ip = if family == AF_INET {
        IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]))
    } else {
        IpAddr::V6(Ipv6Addr::from(*bytes)).to_canonical()
    };
    SocketAddr::new(ip, port)
}

/// A `struct sockaddr` of the internet.
fn given_address(given: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_le_bytes(given.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(given.get(2..4)?.try_into().ok()?);
    let mut bytes = [0; 16];
    match family {
        AF_INET => bytes[..4].copy_from_slice(given.get(4..8)?),
        AF_INET6 => bytes.copy_from_slice(given.get(8..24)?),
        _ => return None,
    }
    Some(address(family, &bytes, port))
}

fn unix(resource: &Resource, given: &[u8]) -> String {
    let object = &resource.object;
    let kind = if object.socket_type == STREAM { "unix stream" } else { "unix datagram" };
    let peer = unix_name(&object.peer_name, object.peer_name_len)
        .or_else(|| unix_name(given, given.len() as u32));
    let own = unix_name(&object.own_name, object.own_name_len);
    let mut text = match (own, peer) {
        (_, Some(peer)) => format!("{kind} -> {peer}"),
        (Some(own), None) => format!("{kind} {own}"),
        (None, None) => format!("{kind} {}", object.inode),
    };
    let woken_by_peer =
        other_end(&resource.waker).filter(|_| resource.waker.who.tgid != resource.header.tgid);
    match woken_by_peer {
        Some(peer) => text.push_str(&format!(", other end {peer}")),
        None if object.peer_pid != 0 && object.peer_pid != resource.header.tgid => {
            text.push_str(&format!(", other end pid {}", object.peer_pid));
        }
        None => {}
    }
    text
}

/// A path, or `@name` of the abstract namespace.
fn unix_name(bytes: &[u8], length: u32) -> Option<String> {
    let name = used(bytes, length).get(2..)?;
    match name.first()? {
        0 if name.len() > 1 => Some(format!("@{}", String::from_utf8_lossy(&name[1..]))),
        0 => None,
        _ => Some(String::from_utf8_lossy(terminated(name)).into_owned()),
    }
}
