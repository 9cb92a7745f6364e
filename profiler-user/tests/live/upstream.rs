//! A server that answers slowly, for programs that wait for one.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// Answers every request after the same time, on a thread of its own; lives as long as the tests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Upstream(SocketAddr);

impl Upstream {
    pub(crate) fn start(delay: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || answer(stream, delay));
            }
        });
        Self(address)
    }

    /// As programs take it: `127.0.0.1:PORT`.
    pub(crate) fn address(self) -> String {
        self.0.to_string()
    }
}

/// One request, one answer; whoever hangs up early does not want it.
fn answer(mut stream: TcpStream, delay: Duration) {
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut bytes) {
            Ok(read) if read > 0 => head.extend_from_slice(&bytes[..read]),
            _ => return,
        }
    }
    thread::sleep(delay);
    let _ = stream.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
    );
}
