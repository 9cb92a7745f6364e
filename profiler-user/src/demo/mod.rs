//! The bundled shop that `stallscope demo` watches: a small tokio service that blocks its runtime
//! in five ways people do it in earnest, and the customers that make it do so.
//!
//! The shop runs as a process of its own (`stallscope demo-service --port 0`) and knows nothing of
//! being watched: `stallscope demo` attaches to it from outside like to any other.
//!
//! - `handlers`: what the report will point at. Read this one.
//! - `service`: listener, request line, routing.
//! - `load`: customers, bounded in number and time.

mod handlers;
mod load;
mod service;

use std::ffi::OsString;

pub use load::{LoadReport, load};

/// Runs the shop until it is killed. `args` are those behind `demo-service`: `--port N`, where 0
/// (the default) means any free one. Prints the port on a line of its own once it listens.
///
/// # Errors
/// Wrong arguments, or a port that can't be had.
pub fn serve(args: &[OsString]) -> anyhow::Result<()> {
    let port = parse_port(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("shop-worker")
        .enable_all()
        .build()?;
    runtime.block_on(service::listen(port))
}

fn parse_port(args: &[OsString]) -> anyhow::Result<u16> {
    match args {
        [] => Ok(0),
        [flag, port] if flag == "--port" => {
            let port = port.to_str().and_then(|port| port.parse().ok());
            port.ok_or_else(|| anyhow::anyhow!("--port wants a number from 0 to 65535"))
        }
        _ => anyhow::bail!("demo-service takes --port N and nothing else"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn port_of(args: &[&str]) -> anyhow::Result<u16> {
        parse_port(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn arguments() {
        assert_eq!(port_of(&[]).ok(), Some(0));
        assert_eq!(port_of(&["--port", "8080"]).ok(), Some(8080));
        assert!(port_of(&["--port"]).is_err());
        assert!(port_of(&["--port", "65536"]).is_err());
        assert!(port_of(&["--verbose", "1"]).is_err());
    }

    #[test]
    fn every_department_is_open() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_all()
            .build()
            .expect("a runtime");
        let report = runtime.block_on(async {
            let (shop, address) = service::bind(0).await.expect("a free port");
            let shop = tokio::spawn(service::accept(shop));
            let report = load(address, Duration::from_secs(3)).await;
            shop.abort();
            report
        });
        assert_eq!(report.failed, 0, "{report:?}");
        assert!(report.answered >= handlers::DEPARTMENTS.len() as u64, "{report:?}");
        assert!(report.slowest >= Duration::from_millis(100), "somebody waited: {report:?}");
    }
}
