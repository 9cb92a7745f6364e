//! What the sockets of a process's network namespace are connected to, from `/proc/PID/net`.

use std::fs;

use profiler_common::waits::Object;

const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const TCP: u16 = 6;
const UDP: u16 = 17;

/// Fills in what is known of the socket with the object's inode. A socket that is in none of the
/// tables stays as it is.
pub(super) fn describe(pid: u32, object: &mut Object) {
    for (table, family, protocol) in [
        ("tcp", AF_INET, TCP),
        ("tcp6", AF_INET6, TCP),
        ("udp", AF_INET, UDP),
        ("udp6", AF_INET6, UDP),
    ] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        if internet(&text, object) {
            (object.family, object.protocol) = (family, protocol);
            return;
        }
    }
    let text = fs::read(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    unix(&String::from_utf8_lossy(&text), object);
}

/// `sl local_address rem_address st queues timer retransmits uid timeout inode …`
fn internet(table: &str, object: &mut Object) -> bool {
    let inode = object.inode.to_string();
    let line = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|fields| fields.get(9) == Some(&inode.as_str()));
    let Some(fields) = line else { return false };
    let (Some(own), Some(peer)) = (address(fields[1]), address(fields[2])) else { return false };
    (object.own, object.own_port) = own;
    (object.peer, object.peer_port) = peer;
    true
}

/// `0100007F:1F90`: words of the address as this machine has them, and the port.
fn address(text: &str) -> Option<([u8; 16], u16)> {
    let (words, port) = text.split_once(':')?;
    let mut bytes = [0; 16];
    for (at, word) in words.as_bytes().chunks(8).enumerate() {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.get_mut(at * 4..at * 4 + 4)?.copy_from_slice(&word.to_ne_bytes());
    }
    Some((bytes, u16::from_str_radix(port, 16).ok()?))
}

/// `Num RefCount Protocol Flags Type St Inode Path`
fn unix(table: &str, object: &mut Object) {
    let inode = object.inode.to_string();
    for line in table.lines() {
        let mut rest = line;
        let mut fields = Vec::new();
        while fields.len() < 7
            && let Some((field, behind)) = rest.trim_start().split_once(' ').or(Some((rest, "")))
            && !field.is_empty()
        {
            fields.push(field);
            rest = behind;
        }
        if fields.get(6) != Some(&inode.as_str()) {
            continue;
        }
        object.family = AF_UNIX;
        object.socket_type = u16::from_str_radix(fields[4], 16).unwrap_or(0);
        let mut name = rest.as_bytes().to_vec();
        if name.is_empty() {
            return;
        }
        if name[0] == b'@' {
            // The abstract namespace.
            name[0] = 0;
        }
        let length = name.len().min(object.own_name.len() - 2);
        object.own_name[..2].copy_from_slice(&AF_UNIX.to_ne_bytes());
        object.own_name[2..2 + length].copy_from_slice(&name[..length]);
        object.own_name_len = length as u32 + 2;
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_found_by_its_inode() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1F90 0200007F:0035 01 00000000:00000000 00:00000000 00000000  0  0 4711 1 0 20 4 30 10 -1\n";
        let mut object = Object { inode: 4711, ..Object::NONE };
        assert!(internet(table, &mut object));
        assert_eq!((object.own[..4].to_vec(), object.own_port), (vec![127, 0, 0, 1], 8080));
        assert_eq!((object.peer[..4].to_vec(), object.peer_port), (vec![127, 0, 0, 2], 53));
        object.inode = 1;
        assert!(!internet(table, &mut object));
    }

    #[test]
    fn a_unix_socket_is_found_with_or_without_a_name() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
             0000000000000000: 00000002 00000000 00010000 0002 01 20001 /run/my log\n\
             0000000000000000: 00000003 00000000 00000000 0001 03 20002\n\
             0000000000000000: 00000003 00000000 00000000 0001 03 20003 @hidden\n";
        let of = |inode| {
            let mut object = Object { inode, ..Object::NONE };
            unix(table, &mut object);
            let name = object.own_name[..object.own_name_len as usize].to_vec();
            (object.family, object.socket_type, name)
        };
        assert_eq!(of(20001), (1, 2, b"\x01\0/run/my log".to_vec()));
        assert_eq!(of(20002), (1, 1, Vec::new()));
        assert_eq!(of(20003), (1, 1, b"\x01\0\0hidden".to_vec()));
        assert_eq!(of(7).0, 0);
    }
}
