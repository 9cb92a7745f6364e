//! Debian's redis-server, untouched: it has no debug information and only dynamic symbols.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::fixtures::Folder;
use crate::gate::{enter, has_programs, patience, skip, slowness};
use crate::load::{free_address, wait_for_port};
use crate::process::Process;
use crate::report::Stall;
use crate::stallscope::Watch;

/// A server on a port and in a folder of its own.
pub(crate) struct Redis {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    client: BufReader<TcpStream>,
    _folder: Folder,
}

impl Redis {
    /// Starts one. `None` if this machine has none: the skip has been printed.
    pub(crate) fn start() -> Option<Self> {
        if !has_programs(&["redis-server"]) {
            return None;
        }
        let folder = Folder::new("redis");
        let address = free_address();
        let process = Process::start(
            Command::new("redis-server")
                .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""])
                .args(["--appendonly", "no", "--enable-debug-command", "yes", "--dir"])
                .arg(folder.path()),
        );
        wait_for_port(address);
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(patience(120))).expect("a time-out");
        Some(Self { process, address, client: BufReader::new(stream), _folder: folder })
    }

    /// One command; its whole answer as text (arrays are read and dropped), and how long it took.
    pub(crate) fn ask(&mut self, words: &[&str]) -> (String, Duration) {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        let started = Instant::now();
        self.client.get_mut().write_all(request.as_bytes()).expect("the server reads");
        let first = self.answer();
        let took = started.elapsed();
        assert!(!first.starts_with('-'), "{words:?}: {first}");
        (first, took)
    }

    fn answer(&mut self) -> String {
        let mut head = String::new();
        self.client.read_line(&mut head).expect("the server answers");
        let number = head.get(1..).and_then(|n| n.trim().parse::<i64>().ok()).unwrap_or(0);
        match head.as_bytes().first() {
            Some(b'$') if number >= 0 => {
                let mut text = vec![0; usize::try_from(number).expect("not negative") + 2];
                self.client.read_exact(&mut text).expect("the whole string");
                String::from_utf8_lossy(&text).into_owned()
            }
            Some(b'*') => {
                (0..number).for_each(|_| drop(self.answer()));
                head
            }
            _ => head,
        }
    }

    /// A number out of INFO.
    fn info(&mut self, section: &str, key: &str) -> u64 {
        let (text, _) = self.ask(&["INFO", section]);
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':')?.trim().parse().ok())
            .unwrap_or_else(|| panic!("no {key} in {text}"))
    }
}

/// Runs one command under a profile and gives the only stall of its size, and how long the client waited.
fn stall_of(redis: &mut Redis, words: &[&str]) -> (Stall, Duration) {
    stall_of_all(redis, |redis| redis.ask(words).1)
}

/// The same for whatever is asked of the server meanwhile.
fn stall_of_all(redis: &mut Redis, ask: impl FnOnce(&mut Redis) -> Duration) -> (Stall, Duration) {
    let watch = Watch::profile(redis.process.pid());
    let took = ask(redis);
    std::thread::sleep(Duration::from_millis(200));
    let report = watch.stop();
    assert_eq!(report.loop_of(redis.process.pid()).runtime, "native");
    let longest = report.blamed().into_iter().max_by_key(|stall| stall.duration_ns);
    let longest = longest.unwrap_or_else(|| panic!("no stall: {report:#?}")).clone();
    assert_eq!(u64::from(redis.process.pid()), longest.pid);
    (longest, took)
}

/// The server's turn can't be longer than the client waited, give or take the answer's way back.
fn check_duration(stall: &Stall, client: Duration, share: f64) {
    let (stall_s, client_s) =
        (Duration::from_nanos(stall.duration_ns).as_secs_f64(), client.as_secs_f64());
    let slack = 0.005 * f64::from(slowness());
    assert!(
        stall_s <= client_s * 1.02 + slack,
        "{stall_s} s reported, the client waited {client_s} s"
    );
    assert!(
        stall_s >= client_s * share - slack,
        "{stall_s} s reported, the client waited {client_s} s"
    );
}

#[test]
fn debug_sleep_is_a_system_call_of_debug_command() {
    let Some(_turn) = enter() else { return };
    let Some(mut redis) = Redis::start() else { return };
    let (stall, took) = stall_of(&mut redis, &["DEBUG", "SLEEP", "0.3"]);
    assert_eq!(stall.cause, "syscall", "{stall:#?}");
    assert!(stall.duration_ns >= 300_000_000, "{stall:#?}");
    check_duration(&stall, took, 0.98);
    assert!(
        stall.syscalls.first().is_some_and(|call| call.name.ends_with("nanosleep")),
        "{stall:#?}"
    );
    let blocker = stall.blocker.as_ref().expect("checked on reading");
    assert_eq!(blocker.function, "debugCommand", "{stall:#?}");
}

#[test]
fn a_lua_loop_is_cpu_under_eval() {
    let Some(_turn) = enter() else { return };
    let Some(mut redis) = Redis::start() else { return };
    let script = "local n = 0 for i = 1, 20000000 do n = n + i end return n";
    let (stall, took) = stall_of(&mut redis, &["EVAL", script, "0"]);
    assert_eq!(stall.cause, "cpu", "{stall:#?}");
    check_duration(&stall, took, 0.95);
    assert!(
        stall.names(&["evalGenericCommand", "evalGenericCommandWithDebugging", "evalCommand"]),
        "{stall:#?}"
    );
}

#[test]
fn keys_over_a_million_is_cpu_in_keys_command() {
    let Some(_turn) = enter() else { return };
    let Some(mut redis) = Redis::start() else { return };
    redis.ask(&["DEBUG", "POPULATE", "1000000"]);
    let (stall, took) = stall_of(&mut redis, &["KEYS", "*"]);
    assert_eq!(stall.cause, "cpu", "{stall:#?}");
    // The client goes on reading the answer in later turns.
    check_duration(&stall, took, 0.2);
    assert!(stall.names(&["keysCommand"]), "{stall:#?}");
}

#[test]
fn deleting_a_big_set_is_cpu_in_del() {
    let Some(_turn) = enter() else { return };
    let Some(mut redis) = Redis::start() else { return };
    let fill = "for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('SADD', KEYS[1], 'member:' .. i) end";
    // In pieces: nobody should wait for one script of ten seconds.
    for piece in 0..20 {
        let (from, to) = ((piece * 100_000 + 1).to_string(), ((piece + 1) * 100_000).to_string());
        redis.ask(&["EVAL", fill, "1", "big", &from, &to]);
    }
    let (stall, took) = stall_of(&mut redis, &["DEL", "big"]);
    assert_eq!(stall.cause, "cpu", "{stall:#?}");
    check_duration(&stall, took, 0.95);
    // What the binary exports of DEL's way down; `dbGenericDelete` is not exported.
    assert!(stall.names(&["delGenericCommand"]), "{stall:#?}");
    assert!(
        stall.names(&["_dictClear", "dictRelease", "freeSetObject", "decrRefCount"]),
        "{stall:#?}"
    );
}

#[test]
fn bgsave_of_two_gigabytes_is_kernel_time_in_fork() {
    let Some(_turn) = enter() else { return };
    let Some(gigabytes) = room_for_gigabytes() else { return };
    let Some(mut redis) = Redis::start() else { return };
    let keys = gigabytes * 1_000_000;
    redis.ask(&["DEBUG", "POPULATE", &keys.to_string(), "key", "1000"]);
    let (stall, _) = stall_of(&mut redis, &["BGSAVE"]);
    let fork_ns = redis.info("stats", "latest_fork_usec") * 1000;
    assert_eq!(stall.cause, "cpu", "{stall:#?}");
    assert_eq!(stall.detail.as_deref(), Some("fork"), "{stall:#?}");
    assert!(stall.kernel_share.is_some_and(|share| share > 0.7), "{stall:#?}");
    assert!(stall.names(&["redisFork", "rdbSaveBackground", "bgsaveCommand"]), "{stall:#?}");
    // The server times its own fork: the turn is that and a little more.
    let extra = (fork_ns / 10).max(10_000_000) + stall.ledger("runqueue_ns");
    assert!(
        (fork_ns..=fork_ns + extra).contains(&stall.duration_ns),
        "fork took {fork_ns}: {stall:#?}"
    );
}

/// 2 if this machine has the memory, 1 if it has less, `None` (skipped) if not even that.
fn room_for_gigabytes() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").expect("procfs");
    let available = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes =
        available.and_then(|n| n.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0);
    match kilobytes / 1_000_000 {
        0..2 => {
            skip("not enough memory for a redis of 1 GB");
            None
        }
        2..5 => Some(1),
        _ => Some(2),
    }
}

/// What they sent waits in their sockets, and one more waits to be let in.
#[test]
fn a_stall_says_how_many_clients_it_kept_waiting() {
    let Some(_turn) = enter() else { return };
    let Some(mut redis) = Redis::start() else { return };
    for clients in [0, 7] {
        let address = redis.address;
        let mut crowd: Vec<TcpStream> =
            (0..clients).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        // Accepted before the stall begins.
        redis.ask(&["PING"]);
        let (stall, _) = stall_of_all(&mut redis, |redis| {
            let late = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(150));
                for client in &mut crowd {
                    client.write_all(b"PING\r\n").expect("it is open");
                }
                let newcomer = (clients > 0).then(|| TcpStream::connect(address));
                (crowd, newcomer)
            });
            let (_, took) = redis.ask(&["DEBUG", "SLEEP", "0.4"]);
            let _clients = late.join().expect("it does not panic");
            took
        });
        let waiting = if clients > 0 { clients + 1 } else { 0 };
        assert_eq!(stall.ready_sockets, Some(waiting), "{stall:#?}");
    }
}
