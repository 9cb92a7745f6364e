//! Standard output that is closed, full or goes nowhere.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::fixtures::start_c;
use crate::gate::{enter, patience};
use crate::stallscope::{binary, command, run};

#[test]
fn who_asks_for_the_end_need_not_read_first() {
    let Some(_turn) = enter() else { return };
    let target = start_c("poll_loop", &[]);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    // SAFETY: sets and asks for the size of a pipe of our own.
    let bytes = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    writer.write_all(&vec![b'.'; usize::try_from(bytes).expect("a size")]).expect("room for it");
    let pid = target.pid().to_string();
    let mut child = command(["attach", "--pid", &pid, "--format", "json", "--interval", "100ms"])
        .stdin(Stdio::null())
        .stdout(Stdio::from(writer))
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    // In the middle of a write: `ppoll` or `poll` on the pipe.
    let stack = format!("/proc/{}/syscall", child.id());
    let deadline = Instant::now() + patience(20);
    while !std::fs::read_to_string(&stack).is_ok_and(|text| text.starts_with("7 ")) {
        assert!(Instant::now() < deadline, "it does not wait for room");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = libc::pid_t::try_from(child.id()).expect("a pid");
    // SAFETY: a signal to a child that has not been waited for.
    unsafe { libc::kill(pid, libc::SIGTERM) };
    let asked = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        assert!(asked.elapsed() < patience(10), "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(reader);
    let output = child.wait_with_output().expect("ended");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("standard output can't be written: nobody reads it"), "{stderr}");
}

#[test]
fn output_that_goes_nowhere_is_a_failure_that_says_where() {
    let Some(_turn) = enter() else { return };
    let target = start_c("poll_loop", &[]);
    let pid = target.pid().to_string();
    for arguments in [vec!["profile", "--duration", "1s"], vec!["loops", "--duration", "1s"]] {
        let output = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" >&-"#])
            .arg(binary())
            .args(&arguments)
            .args(["--pid", &pid])
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert!(stderr.contains("can't be written: it is closed"), "{arguments:?}: {stderr}");
    }
    let full = ["profile", "--pid", &pid, "--duration", "1s", "--format", "json", "--output"];
    let (code, _, stderr) = run(&[&full[..], &["/dev/full"]].concat());
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("/dev/full can't be written"), "{stderr}");
}
