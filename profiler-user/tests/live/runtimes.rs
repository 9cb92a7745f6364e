//! Other event loops, by their native frames: nginx, Node.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::fixtures::{Folder, script};
use crate::gate::{enter, has_program, has_programs, patience, skip, slowness};
use crate::load::{free_address, get, get_ok, wait_for_port};
use crate::process::Process;
use crate::report::{Report, Stall};
use crate::stallscope::Watch;
use crate::truth::{Truth, match_all};

/// nginx with one worker on a port of its own.
pub(crate) struct Nginx {
    _master: Process,
    pub(crate) worker: u32,
    pub(crate) address: std::net::SocketAddr,
    _folder: Folder,
}

impl Nginx {
    /// Starts one. `None` if this machine has none: the skip has been printed.
    pub(crate) fn start() -> Option<Self> {
        if !has_program("nginx") && !PathBuf::from("/usr/sbin/nginx").is_file() {
            skip("no nginx here");
            return None;
        }
        let program = if has_program("nginx") { "nginx" } else { "/usr/sbin/nginx" };
        let folder = Folder::new("nginx");
        let address = free_address();
        let root = folder.path().display();
        // The regular expression backtracks without end on a row of `a`: a stall that nginx itself makes.
        let configuration = format!(
            "daemon off; worker_processes 1; user root; pid {root}/pid; error_log {root}/error.log;
             events {{ worker_connections 256; }}
             http {{
               access_log off; client_body_temp_path {root}/body; proxy_temp_path {root}/proxy;
               fastcgi_temp_path {root}/fastcgi; uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
               server {{
                 listen {address};
                 location / {{ return 200 \"healthy\\n\"; }}
                 location /search/ {{ if ($uri ~ \"^/search/(a+)+$\") {{ return 200 \"found\\n\"; }} return 404; }}
               }}
             }}\n"
        );
        let configuration = folder.write("nginx.conf", &configuration);
        let master = Process::start(Command::new(program).arg("-c").arg(configuration));
        wait_for_port(address);
        get_ok(address, "/");
        let worker = child_of(master.pid());
        Some(Self { _master: master, worker, address, _folder: folder })
    }
}

pub(crate) fn child_of(pid: u32) -> u32 {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let deadline = Instant::now() + patience(10);
    loop {
        let children = std::fs::read_to_string(&path).expect("the parent lives");
        if let Some(child) = children.split_whitespace().next() {
            return child.parse().expect("a pid");
        }
        assert!(Instant::now() < deadline, "{pid} has no child");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn longest(report: &Report) -> &Stall {
    report
        .blamed()
        .into_iter()
        .max_by_key(|s| s.duration_ns)
        .unwrap_or_else(|| panic!("no stall: {report:#?}"))
}

#[test]
fn nginx_backtracking_regex_is_cpu() {
    let Some(_turn) = enter() else { return };
    let Some(nginx) = Nginx::start() else { return };
    let watch = Watch::profile(nginx.worker);
    let asked = Instant::now();
    // 404 or 500: the pattern fails, or reaches PCRE's limit.
    let answer = get(nginx.address, "/search/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab");
    let waited = asked.elapsed();
    assert!(answer.is_ok(), "{answer:?}");
    let report = watch.stop();
    assert_eq!(report.loop_of(nginx.worker).runtime, "native");
    let stall = longest(&report);
    assert_eq!(stall.cause, "cpu", "{stall:#?}");
    let (measured, waited) =
        (Duration::from_nanos(stall.duration_ns), waited + Duration::from_millis(1));
    assert!(measured <= waited, "{measured:?} reported, the client waited {waited:?}");
    let slack = waited / 20 + Duration::from_millis(10) * slowness();
    assert!(measured + slack >= waited, "{measured:?} reported, the client waited {waited:?}");
    assert!(
        stall.names(&["ngx_regex_exec", "ngx_http_regex_exec", "ngx_http_script_regex_start_code"]),
        "{stall:#?}"
    );
}

#[test]
fn nginx_stopped_by_a_signal_is_nobodys_line() {
    let Some(_turn) = enter() else { return };
    let Some(nginx) = Nginx::start() else { return };
    let watch = Watch::profile(nginx.worker);
    let worker = nginx.worker.cast_signed();
    let stopped = Instant::now();
    // SAFETY: the worker is ours and lives as long as its master.
    unsafe { libc::kill(worker, libc::SIGSTOP) };
    std::thread::sleep(Duration::from_millis(300));
    // SAFETY: as above.
    unsafe { libc::kill(worker, libc::SIGCONT) };
    let stopped = stopped.elapsed();
    get_ok(nginx.address, "/");
    let report = watch.stop();
    let stall = longest(&report);
    assert_eq!(stall.cause, "stopped", "{stall:#?}");
    let difference = Duration::from_nanos(stall.duration_ns).abs_diff(stopped);
    assert!(difference <= Duration::from_millis(10) * slowness(), "{difference:?} off: {stall:#?}");
}

/// Profiles an interpreted program while it stalls three times more.
fn check_script(process: &Process, runtimes: &[&str]) {
    process.wait_for_truths(1, patience(20));
    let watch = Watch::profile(process.pid());
    let before = process.truths().len() + 1;
    process.wait_for_truths(before + 3, patience(20));
    let report = watch.stop();
    let truths: Vec<Truth> = process.truths().split_off(before).into_iter().take(3).collect();
    let one = report.loop_of(process.pid());
    assert!(runtimes.contains(&one.runtime.as_str()), "{one:#?}");
    let from = truths[0].start_unix_ns - 50_000_000;
    let to = truths[2].start_unix_ns + truths[2].duration_ns;
    let inside: Vec<Stall> =
        report.stalls.into_iter().filter(|s| (from..to).contains(&s.start_unix_ns)).collect();
    let matches = match_all(&truths, &inside);
    assert_eq!(matches.len(), 3, "one stall for one call: {inside:#?}");
    for one in matches {
        if one.truths[0].cause() == "cpu" {
            // V8 collects the garbage of the call in the same turn, out of the program's sight.
            let (told, known) = (one.stall.duration_ns, one.truths[0].duration_ns);
            let starved = one.stall.ledger("runqueue_ns");
            assert!((known - known / 100..known + known / 4 + starved).contains(&told), "{one}");
        } else {
            one.check_duration();
        }
        // The line is the interpreter's: whoever reads its frames checks that.
        one.check_cause();
        assert!(runtimes.contains(&one.stall.runtime.as_str()), "{one}");
    }
}

#[test]
fn node_stalls_are_measured() {
    let Some(_turn) = enter() else { return };
    if !has_programs(&["node"]) {
        return;
    }
    let process = Process::start(Command::new("node").arg(script("node/node_stall.js")));
    process.wait_for_key("ready");
    check_script(&process, &["libuv", "native"]);
}
