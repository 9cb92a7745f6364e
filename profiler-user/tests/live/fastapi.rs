//! A FastAPI service under load, with asyncio and with uvloop, where the packages are: a blocking client
//! on the loop, in a thread, and none; the pool's cliff at its limit; attaching to a service that hangs.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixtures::Folder;
use crate::gate::{enter, patience, skip, slowness};
use crate::load::{Load, get_ok, loopback, wait_for_port};
use crate::process::Process;
use crate::pythons::{Python, with_packages};
use crate::report::{Pool, PoolStack, Report, Stall};
use crate::stallscope::Watch;
use crate::upstream::Upstream;

/// What AnyIO allows unless somebody changes it.
const ANYIO_LIMIT: u64 = 40;
/// Shorter turns are a busy machine's, not the program's.
const NOISE_NS: u64 = 50_000_000;

struct Service {
    process: Process,
    address: SocketAddr,
    tid: u32,
    _folder: Option<Folder>,
}

impl Service {
    fn start(python: &Python, upstream: Upstream, runtime: &str) -> Self {
        let (mut command, folder) = python.run("fastapi_app.py", &[&upstream.address(), runtime]);
        let process = Process::start(&mut command);
        let started = process
            .wait_for_json(patience(60), |json| json.get("port").map(|_| json.clone()))
            .unwrap_or_else(|| panic!("{python:?}: {}", process.stderr()));
        let number = |key: &str| started[key].as_u64().expect("a number");
        let tid = u32::try_from(number("tid")).expect("a thread");
        let address = loopback(number("port"));
        wait_for_port(address);
        get_ok(address, "/ping");
        Self { process, address, tid, _folder: folder }
    }

    /// At which line an endpoint asks the upstream, as it knows itself.
    fn line(&self, endpoint: &str) -> u64 {
        get_ok(self.address, "/lines");
        self.process.wait_for_key("lines");
        let told = self.process.lines();
        let lines = told.iter().rev().filter_map(|l| serde_json::from_str::<Value>(&l.text).ok());
        let line = lines.into_iter().find_map(|json| json["lines"][endpoint].as_u64());
        line.unwrap_or_else(|| panic!("{endpoint} never ran: {}", self.process.stdout()))
    }

    /// So many requests at once; they are answered when this returns.
    fn ask(&self, path: &str, clients: usize) {
        std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| get_ok(self.address, path));
            }
        });
    }
}

fn interpreters() -> Vec<Python> {
    let found = with_packages(&["fastapi", "uvicorn", "requests", "httpx", "uvloop"]);
    if found.is_empty() {
        skip("no Python with FastAPI, uvicorn, requests, httpx and uvloop here");
    }
    found
}

/// Stalls of a cause other than the scheduler's, longer than a busy machine's noise.
fn real(report: &Report) -> Vec<&Stall> {
    let own = |stall: &&Stall| {
        stall.duration_ns - stall.ledger("runqueue_ns") > NOISE_NS * u64::from(slowness())
    };
    report.blamed().into_iter().filter(own).collect()
}

/// Row a1, with either loop.
#[test]
fn a_blocking_client_on_a_loaded_loop_is_told_with_its_line_and_endpoint() {
    let Some(_turn) = enter() else { return };
    // All twenty may be ready in one turn.
    let upstream = Upstream::start(Duration::from_millis(80));
    for (index, python) in interpreters().iter().enumerate() {
        let runtime = ["uvloop", "asyncio"][index % 2];
        let service = Service::start(python, upstream, runtime);
        let load = Load::start(service.address, "/block", 20);
        let started = Instant::now();
        let watch = Watch::attach(service.process.pid());
        // The first report comes while people still look at the terminal.
        let first = watch
            .process
            .wait_for_json(patience(20), |json| (json["type"] == "stall").then(|| json.clone()))
            .unwrap_or_else(|| panic!("{python:?}: {}", watch.process.stderr()));
        let after = started.elapsed();
        // Attaching, and one second of a turn that began meanwhile.
        assert!(after < Duration::from_secs(5) * slowness(), "{python:?}: {after:?}: {first}");
        std::thread::sleep(Duration::from_secs(4) * slowness());
        let report = watch.stop();
        drop(load);
        let line = service.line("block");
        let told: Vec<_> = real(&report).into_iter().filter(|stall| !stall.at_attach).collect();
        assert!(!told.is_empty(), "{python:?}: {:#?}", report.stalls);
        for stall in told {
            check_block(&format!("{python:?} {runtime}"), stall, line, upstream);
        }
        let one = report.loop_of(service.tid);
        assert!(one.utilization > 0.9 && one.runtime == runtime, "{python:?}: {one:#?}");
    }
}

/// The first report comes within a second of the command, whatever the request in flight is about to do.
#[test]
fn a_service_that_hangs_is_told_of_within_a_second_on_either_loop() {
    let Some(_turn) = enter() else { return };
    let upstream = Upstream::start(Duration::from_secs(1));
    let Some(python) = interpreters().into_iter().next() else { return };
    for runtime in ["asyncio", "uvloop"] {
        let service = Service::start(&python, upstream, runtime);
        let _load = Load::start(service.address, "/block", 20);
        std::thread::sleep(Duration::from_millis(1500));
        let after = [0, 1, 2].map(|_| {
            let started = Instant::now();
            let watch = Watch::attach(service.process.pid());
            let first = watch
                .process
                .wait_for_json(patience(20), |json| {
                    (json["type"] == "stall").then(|| Stall::read(json))
                })
                .unwrap_or_else(|| panic!("{python:?}: {}", watch.process.stderr()));
            let after = started.elapsed();
            let blocker = first.blocker.as_ref().expect("its line");
            assert_eq!((&*first.cause, &*blocker.function), ("syscall", "block"), "{first:#?}");
            (after, first.at_attach)
        });
        let bound = Duration::from_secs(1) * slowness();
        assert!(after.iter().all(|&(after, _)| after < bound), "{runtime}: {after:?}");
    }
}

fn check_block(about: &str, stall: &Stall, line: u64, upstream: Upstream) {
    assert_eq!(stall.cause, "syscall", "{about}: {stall:#?}");
    // One request after the other; a turn serves several, each of which takes as long.
    assert!(stall.ledger("syscall_ns") >= 75_000_000, "{about}: {stall:#?}");
    let part = stall.parts.first().unwrap_or_else(|| panic!("{about}: {stall:#?}"));
    assert_eq!((part.coroutine.as_deref(), part.line), (Some("block"), Some(line)), "{about}");
    let blocker = stall.blocker.as_ref().expect("checked before");
    assert_eq!((blocker.function.as_str(), blocker.line), ("block", Some(line)), "{about}");
    assert!(blocker.file.as_deref().is_some_and(|f| f.ends_with("fastapi_app.py")), "{about}");
    let waited = stall.syscalls.iter().filter_map(|call| call.resource.as_deref());
    let address = upstream.address();
    assert!(waited.clone().any(|r| r.contains(&address)), "{about}: {:#?}", stall.syscalls);
    let task = stall.task.as_ref().unwrap_or_else(|| panic!("{about}: no task: {stall:#?}"));
    assert_eq!(task.chain.last().map(String::as_str), Some("block"), "{about}: {task:#?}");
    let advice = stall.advice.as_deref().unwrap_or_default();
    assert!(advice.contains("asynchronous version"), "{about}: {advice}");
}

/// Rows a2, a3 and b.
#[test]
fn the_pool_of_synchronous_endpoints_is_full_at_its_limit_and_not_before() {
    let Some(_turn) = enter() else { return };
    let upstream = Upstream::start(Duration::from_millis(900));
    let all = interpreters();
    for python in all.iter().rev().take(3) {
        let service = Service::start(python, upstream, "asyncio");
        // Threads begin in turns of their own, and a client imports its transport when it is first used.
        service.ask("/pool", 40);
        service.ask("/client", 20);
        for (path, clients) in [("/client", 20), ("/pool", 39), ("/pool", 40), ("/pool", 100)] {
            let watch = Watch::profile(service.process.pid());
            service.ask(path, clients);
            let report = watch.stop();
            let about = format!("{python:?}: {clients} times {path}");
            assert!(real(&report).is_empty(), "{about}: {:#?}", real(&report));
            let pools = || report.pools.iter().filter(|pool| pool.kind == "anyio");
            if path == "/client" {
                assert!(pools().all(|pool| pool.busy_max == 0), "{about}: {:#?}", report.pools);
                continue;
            }
            let [pool] = pools().collect::<Vec<_>>()[..] else {
                panic!("{about}: {:#?}", report.pools)
            };
            let line = service.line("pool");
            check_pool(&about, pool, clients as u64, line);
        }
        // A synchronous dependency of an asynchronous endpoint takes a thread as well.
        let watch = Watch::profile(service.process.pid());
        service.ask("/dependency", 41);
        let report = watch.stop();
        let full = report.pools.iter().any(|pool| pool.kind == "anyio" && pool.saturations > 0);
        assert!(full, "{python:?}: {:#?}", report.pools);
    }
}

fn check_pool(about: &str, pool: &Pool, clients: u64, line: u64) {
    // Read from the limiter itself.
    assert_eq!((pool.limit, pool.limit_inferred), (Some(ANYIO_LIMIT), false), "{about}: {pool:#?}");
    let (busy, full) = (clients.min(ANYIO_LIMIT), clients >= ANYIO_LIMIT);
    assert_eq!((pool.busy_max, pool.saturations > 0), (busy, full), "{about}: {pool:#?}");
    let queued = pool.queued_max.unwrap_or_else(|| panic!("{about}: {pool:#?}"));
    assert_eq!(queued > 0, clients > ANYIO_LIMIT, "{about}: {pool:#?}");
    assert!(queued <= clients.saturating_sub(ANYIO_LIMIT), "{about}: {pool:#?}");
    // Looked at five times a second.
    let enough = if full { 400_000_000 } else { 0 };
    assert!(pool.saturated_ns >= enough, "{about}: {pool:#?}");
    let at = |stack: &PoolStack| {
        stack.frames.iter().any(|frame| frame.function == "pool" && frame.line == Some(line))
    };
    assert!(pool.stacks.iter().any(at), "{about}: {pool:#?}");
}

/// Attaching and leaving, also by a kill, is nothing to a service under load.
#[test]
fn profilers_that_come_and_go_fail_no_request() {
    let Some(_turn) = enter() else { return };
    let upstream = Upstream::start(Duration::from_millis(20));
    let Some(python) = interpreters().pop() else { return };
    let mut service = Service::start(&python, upstream, "uvloop");
    let load = Load::start(service.address, "/pool", 8);
    let rounds: u32 =
        std::env::var("STALLSCOPE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    for round in 0..rounds {
        let mut watch = Watch::attach(service.process.pid());
        // At every stage of the attaching, and some after it.
        std::thread::sleep(Duration::from_millis(u64::from(round * 37 % 400)));
        let signal = if round % 2 == 0 { libc::SIGKILL } else { libc::SIGINT };
        watch.process.signal(signal);
        assert!(watch.process.wait(patience(30)).is_some(), "round {round}: it hangs");
    }
    let (answers, failures) = load.finish();
    assert!(service.process.is_alive(), "{}", service.process.stderr());
    assert!(answers > 0 && failures == 0, "{answers} answers, {failures} failures");
}
