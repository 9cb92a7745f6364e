//! Servers that are watched, and the load that they are under.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::{Options, Running};
use crate::commands;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// redis-server under redis-benchmark
    Redis,
    /// One worker of nginx under wrk
    Nginx,
}

/// One that runs.
pub(super) struct Server {
    kind: Kind,
    port: u16,
    /// The process with the event loop.
    pub(super) pid: u32,
    _process: Running,
    _folder: Option<Folder>,
}

/// What one run of the load came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Load {
    pub(super) requests: f64,
    pub(super) per_second: f64,
}

impl Kind {
    pub(super) fn require(self) -> Result<()> {
        commands::require(match self {
            Self::Redis => &[("redis-server", "redis-server"), ("redis-benchmark", "redis-tools")],
            Self::Nginx => &[("nginx", "nginx-light"), ("wrk", "wrk")],
        })
    }

    pub(super) fn start(self) -> Result<Server> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let (mut command, folder) = match self {
            Self::Redis => (redis(port), None),
            Self::Nginx => {
                let folder = Folder::new()?;
                (nginx(port, &folder)?, Some(folder))
            }
        };
        let process = command.stdout(Stdio::null()).spawn().context("cannot start the server")?;
        let process = Running(process);
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > deadline {
                bail!("the server does not listen");
            }
            sleep(Duration::from_millis(20));
        }
        let own = process.0.id();
        let pid = if self == Self::Nginx { worker_of(own)? } else { own };
        Ok(Server { kind: self, port, pid, _process: process, _folder: folder })
    }
}

fn redis(port: u16) -> Command {
    let mut command = Command::new("redis-server");
    let port = port.to_string();
    command.args(["--bind", "127.0.0.1", "--save", "", "--daemonize", "no", "--port", &port]);
    command
}

fn nginx(port: u16, folder: &Folder) -> Result<Command> {
    let root = folder.0.display();
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {root}/{name}; "))
        .collect();
    let text = format!(
        "daemon off; worker_processes 1; user root; pid {root}/pid; error_log {root}/error.log;
         events {{ worker_connections 256; }}
         http {{
           access_log off; {paths}
           server {{ listen 127.0.0.1:{port}; location / {{ return 200 \"healthy\\n\"; }} }}
         }}\n"
    );
    let file = folder.0.join("nginx.conf");
    fs::write(&file, text)?;
    let mut command = Command::new("nginx");
    command.arg("-c").arg(file);
    Ok(command)
}

fn worker_of(master: u32) -> Result<u32> {
    let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children"))?;
    let first = children.split_whitespace().next().context("nginx has no worker")?;
    Ok(first.parse()?)
}

impl Server {
    /// Runs the load once.
    pub(super) fn load(&self, options: &Options) -> Result<Load> {
        let (port, clients) = (self.port.to_string(), options.clients.to_string());
        let text = match self.kind {
            Kind::Redis => {
                let requests = options.requests.to_string();
                commands::output(
                    Command::new("redis-benchmark")
                        .args(["-p", &port, "-c", &clients, "-n", &requests])
                        .args(["-t", "get", "--csv"]),
                )?
            }
            Kind::Nginx => commands::output(
                Command::new("wrk")
                    .args(["-t", "1", "-c", &clients, "-d", &format!("{}s", options.seconds)])
                    .arg(format!("http://127.0.0.1:{port}/")),
            )?,
        };
        let load = match self.kind {
            Kind::Redis => redis_benchmark(&text, options.requests),
            Kind::Nginx => wrk(&text),
        };
        load.with_context(|| format!("the load said:\n{text}"))
    }
}

fn redis_benchmark(text: &str, requests: u32) -> Option<Load> {
    let line = text.lines().find(|line| line.starts_with("\"GET\""))?;
    let per_second = line.split(',').nth(1)?.trim_matches('"').parse().ok()?;
    Some(Load { requests: f64::from(requests), per_second })
}

fn wrk(text: &str) -> Option<Load> {
    let done = text.lines().find_map(|line| line.split_once(" requests in "))?;
    let rate = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"))?;
    Some(Load { requests: done.0.trim().parse().ok()?, per_second: rate.trim().parse().ok()? })
}

/// What nginx needs a place for, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("stallscope-bench-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_is_read_with_and_without_a_heading() {
        let of = |text| redis_benchmark(text, 10).map(|load| load.per_second);
        assert_eq!(of("\"GET\",\"125000.00\"\n"), Some(125_000.0));
        let newer = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"99.50\",\"0.1\"\n";
        assert_eq!(of(newer), Some(99.5));
        assert_eq!(of("nothing"), None);
    }

    #[test]
    fn wrk_s_summary_is_read() {
        let text = "  1 threads and 20 connections\n  36789 requests in 2.00s, 5.79MB read\n\
                    Requests/sec:  18394.20\nTransfer/sec:      2.89MB\n";
        assert_eq!(wrk(text), Some(Load { requests: 36789.0, per_second: 18394.2 }));
        assert_eq!(wrk("unable to connect"), None);
    }
}
