//! A small HTTP client, and many of them at once.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::gate::patience;

/// An address on the loopback that nobody listens at.
pub(crate) fn free_address() -> SocketAddr {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback has a free port");
    listener.local_addr().expect("bound")
}

pub(crate) fn loopback(port: u64) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, u16::try_from(port).expect("a port")).into()
}

/// Waits until somebody listens.
pub(crate) fn wait_for_port(address: SocketAddr) {
    let deadline = Instant::now() + patience(20);
    while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
        assert!(Instant::now() < deadline, "nobody listens at {address}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// One GET on a connection of its own: whether the answer was 200.
pub(crate) fn get(address: SocketAddr, path: &str) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&address, patience(30))?;
    stream.set_read_timeout(Some(patience(60)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer.starts_with(b"HTTP/1.1 200"))
}

/// One GET that must work.
pub(crate) fn get_ok(address: SocketAddr, path: &str) {
    match get(address, path) {
        Ok(true) => {}
        other => panic!("GET {path}: {other:?}"),
    }
}

/// `clients` at once, each asking for every path once, in an order of its own.
pub(crate) fn together(address: SocketAddr, paths: &[&str], clients: usize) {
    thread::scope(|scope| {
        for client in 0..clients {
            scope.spawn(move || {
                for turn in 0..paths.len() {
                    get_ok(address, paths[(client + turn) % paths.len()]);
                }
            });
        }
    });
}

/// Clients that keep asking in the background until they are stopped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    failures: Arc<AtomicU64>,
    answers: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(address: SocketAddr, path: &'static str, clients: usize) -> Self {
        let (stop, failures, answers) =
            <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let clients = (0..clients)
            .map(|_| {
                let (stop, failures, answers) = (stop.clone(), failures.clone(), answers.clone());
                thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let counter = if matches!(get(address, path), Ok(true)) {
                            &answers
                        } else {
                            &failures
                        };
                        counter.fetch_add(1, Ordering::Relaxed);
                        // Polite: the point is that requests are in flight, not how many.
                        thread::sleep(Duration::from_millis(2));
                    }
                })
            })
            .collect();
        Self { stop, failures, answers, clients }
    }

    /// Stops the clients: how many requests were answered and how many failed.
    pub(crate) fn finish(mut self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client.join().expect("clients do not panic");
        }
        (self.answers.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
