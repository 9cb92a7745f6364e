//! Customers for the shop: a few that walk through all departments, one that only asks whether it
//! is open and so notices every stall of the others.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::handlers::DEPARTMENTS;

/// Customers that walk through the departments.
const CUSTOMERS: usize = 3;

/// Pause between two requests of one customer, so that stalls stand apart.
const PAUSE: Duration = Duration::from_millis(40);

/// Longest wait for one answer: past it the request has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the customers saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Requests that were answered with 200.
    pub answered: u64,
    /// Requests that were not.
    pub failed: u64,
    /// The longest wait of any customer for an answer.
    pub slowest: Duration,
    /// The longest wait for `/health`, which does nothing: what the stalls of others cost.
    pub slowest_health: Duration,
}

impl LoadReport {
    fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.failed += other.failed;
        self.slowest = self.slowest.max(other.slowest);
        self.slowest_health = self.slowest_health.max(other.slowest_health);
    }
}

/// Sends a handful of customers to the shop at `addr` for `duration`. Returns at the end of it, or
/// once the requests that were under way then are answered or given up.
pub async fn load(addr: SocketAddr, duration: Duration) -> LoadReport {
    let deadline = Instant::now() + duration;
    let mut customers = JoinSet::new();
    for first in 0..CUSTOMERS {
        let mut path = DEPARTMENTS.iter().cycle().skip(first * 2);
        customers.spawn(visit(addr, deadline, move || path.next().copied().unwrap_or("/health")));
    }
    customers.spawn(visit(addr, deadline, || "/health"));
    let mut report = LoadReport::default();
    while let Some(customer) = customers.join_next().await {
        report.add(customer.unwrap_or_default());
    }
    report
}

/// One customer: request after request, until the deadline.
async fn visit(
    addr: SocketAddr,
    deadline: Instant,
    mut next_path: impl FnMut() -> &'static str,
) -> LoadReport {
    let mut report = LoadReport::default();
    while Instant::now() < deadline {
        let path = next_path();
        let asked = Instant::now();
        match timeout(PATIENCE, request(addr, path)).await {
            Ok(Ok(true)) => report.answered += 1,
            _ => report.failed += 1,
        }
        let waited = asked.elapsed();
        report.slowest = report.slowest.max(waited);
        if path == "/health" {
            report.slowest_health = report.slowest_health.max(waited);
        }
        // The pause ends early with the visit.
        let _ = timeout_at(deadline, sleep(PAUSE)).await;
    }
    report
}

/// One GET on a connection of its own: whether the answer was 200.
async fn request(addr: SocketAddr, path: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: shop\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200 "))
}
