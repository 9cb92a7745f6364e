//! What the command line promises.

use std::path::Path;
use std::time::Duration;

use clap::error::ErrorKind;

use super::*;
use crate::report::Format;

const PIPE: Surroundings = Surroundings { terminal: false, color: false, width: 120 };
const TERMINAL: Surroundings = Surroundings { terminal: true, color: true, width: 97 };

fn parse(line: &str) -> Result<Command, clap::Error> {
    parse_in(line, &PIPE)
}

fn parse_in(line: &str, surroundings: &Surroundings) -> Result<Command, clap::Error> {
    parse_from(std::iter::once("stallscope").chain(line.split_whitespace()), surroundings)
}

fn watch(line: &str, surroundings: &Surroundings) -> Watch {
    match parse_in(line, surroundings).expect(line) {
        Command::Attach(watch) | Command::Profile(watch) | Command::Run(watch, _) => watch,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn definition_is_sound() {
    command().debug_assert();
}

#[test]
fn defaults_are_those_of_the_contract() {
    let watch = watch("attach --pid 1", &PIPE);
    assert_eq!(watch.targets.pids, [1]);
    assert_eq!(watch.threshold_ns(), 10_000_000);
    assert_eq!(watch.duration, None);
    assert_eq!((watch.format, watch.live, watch.color), (Format::Text, true, false));
    assert_eq!((watch.backend, watch.boundaries), (Backend::Auto, Boundaries::Auto));
    assert!((watch.overhead_budget - 0.01).abs() < 1e-12);
    assert_eq!((watch.stack_bytes, watch.sample_rate), (36 << 10, 1000));
}

#[test]
fn every_flag_arrives() {
    let line = "profile --pid 7 --pid 8 --pid 7 --duration 3s --threshold 250us --backend ebpf \
                --boundaries sched --overhead-budget 2.5% --stack-bytes 64k --sample-rate 99 \
                --user-code ^/srv --not-user-code vendored --color always -vv --format text \
                --flamegraph f.svg --no-python";
    let watch = watch(line, &PIPE);
    assert_eq!(watch.targets.pids, [7, 8]);
    assert_eq!(watch.duration, Some(Duration::from_secs(3)));
    assert_eq!(watch.threshold, Duration::from_micros(250));
    assert_eq!((watch.backend, watch.boundaries), (Backend::Ebpf, Boundaries::Sched));
    assert!((watch.overhead_budget - 0.025).abs() < 1e-12);
    assert_eq!((watch.stack_bytes, watch.sample_rate, watch.verbose), (64 << 10, 99, 2));
    assert_eq!((watch.live, watch.color, watch.python), (false, true, false));
    assert_eq!(watch.flamegraph.as_deref(), Some(Path::new("f.svg")));
    assert_eq!(watch.user_code.verdict("/srv/app.py"), Some(true));
    assert_eq!(watch.user_code.verdict("/srv/vendored/app.py"), Some(false));
    assert_eq!(watch.user_code.verdict("/usr/lib/python3/json.py"), None);
}

#[test]
fn the_format_follows_the_file() {
    let format = |line: &str| watch(&format!("profile --pid 1 --duration 1s {line}"), &PIPE).format;
    assert_eq!(format(""), Format::Text);
    assert_eq!(format("--output a.json"), Format::Json);
    assert_eq!(format("--output a.svg"), Format::Svg);
    assert_eq!(format("--output a.folded"), Format::Folded);
    assert_eq!(format("--output a.svg --format json"), Format::Json);
    assert_eq!(format("--output -"), Format::Text);
    let error = parse("profile --pid 1 --duration 1s --output a.pdf").expect_err("no such format");
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("--format"), "{error}");
}

#[test]
fn colour_and_width_follow_the_terminal() {
    let on_terminal = watch("attach --pid 1", &TERMINAL);
    assert_eq!((on_terminal.color, on_terminal.width), (true, 97));
    assert!(!watch("attach --pid 1 --color never", &TERMINAL).color);
    assert!(!watch("attach --pid 1 --format json --color always", &TERMINAL).color);
    let to_file = watch("profile --pid 1 --duration 1s --output a.txt", &TERMINAL);
    assert_eq!((to_file.color, to_file.width), (false, 120));
}

#[test]
fn run_takes_the_rest_of_the_line() {
    let line = "run --threshold 5ms --output a.svg -- python -c x --threshold 1s";
    match parse(line).expect("a command") {
        Command::Run(watch, command) => {
            assert_eq!(command, ["python", "-c", "x", "--threshold", "1s"]);
            assert_eq!(watch.threshold, Duration::from_millis(5));
            assert!(watch.targets.is_empty());
        }
        other => panic!("{other:?}"),
    }
    match parse("demo-service --stall 3 -q --help").expect("passed through") {
        Command::DemoService(args) => assert_eq!(args, ["--stall", "3", "-q", "--help"]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn loops_needs_no_target() {
    match parse("loops").expect("loops") {
        Command::Loops(loops) => {
            assert!(loops.targets.is_none());
            assert_eq!(loops.duration, Duration::from_secs(2));
        }
        other => panic!("{other:?}"),
    }
    match parse("loops --name ^node$ --format json").expect("loops") {
        Command::Loops(loops) => {
            assert_eq!(loops.format, Format::Json);
            assert!(loops.targets.and_then(|t| t.name).is_some_and(|name| name.is_match("node")));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(parse("doctor --format json"), Ok(Command::Doctor(Format::Json))));
    assert!(matches!(parse("demo -q"), Ok(Command::Demo(DemoConfig { quiet: true, .. }))));
}

#[test]
fn wrong_usage_is_refused_with_code_2() {
    for line in [
        "attach",
        "attach 4711",
        "attach --pid 0",
        "attach --pid -1",
        "attach --pid x",
        "attach --pid 1 --name x",
        "attach --name (",
        "attach --pid 1 --threshold 0ms",
        "attach --pid 1 --threshold 10",
        "attach --pid 1 --interval 1s",
        "attach --pid 1 --format svg",
        "attach --pid 1 -q -v",
        "attach --pid 1 --sample-rate 0",
        "attach --pid 1 --sample-rate 1000000",
        "attach --pid 1 --stack-bytes 1MiB",
        "attach --pid 1 --overhead-budget 0%",
        "attach --pid 1 --backend ptrace",
        "profile --pid 1",
        "profile --duration 1s",
        "profile --pid 1 --duration 0s",
        "profile --pid 1 --duration 1s --output a.svg --flamegraph a.svg",
        "run",
        "run --threshold 5ms",
        "run python app.py",
        "loops --pid 1 --name x",
        "nonsense",
        "",
    ] {
        let error = parse(line).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}: {error}");
    }
    let error = parse_in("profile --pid 1 --duration 1s --format svg", &TERMINAL);
    assert_eq!(error.expect_err("svg on a terminal").kind(), ErrorKind::ArgumentConflict);
}

#[test]
fn help_shows_examples() {
    for (line, expected) in [
        ("--help", "stallscope attach --pid 4711"),
        ("attach --help", "--name '^uvicorn$'"),
        ("profile --help", "--flamegraph stalls.svg"),
        ("run -h", "stallscope run -- python app.py"),
    ] {
        let error = parse(line).expect_err("help is no command");
        assert_eq!((error.kind(), error.exit_code()), (ErrorKind::DisplayHelp, 0));
        assert!(error.to_string().contains(expected), "{line}: {error}");
    }
    assert!(!parse("--help").expect_err("help").to_string().contains("demo-service"));
}
