//! Help, man pages and completions come from one definition.

use crate::{Folder, stallscope};

const COMMANDS: [&str; 10] = [
    "attach",
    "profile",
    "run",
    "loops",
    "report",
    "flamegraph",
    "diff",
    "check",
    "doctor",
    "demo",
];

#[test]
fn every_command_is_in_help_man_and_completions() {
    let (code, help, _) = stallscope(&["--help"]);
    assert_eq!(code, Some(0));
    let folder = Folder::new("man");
    let pages = folder.path("man1");
    let (code, _, stderr) = stallscope(&["man", &pages]);
    assert_eq!(code, Some(0), "{stderr}");
    let (code, bash, _) = stallscope(&["completions", "bash"]);
    assert_eq!(code, Some(0));
    let (_, fish, _) = stallscope(&["completions", "fish"]);
    for command in COMMANDS {
        assert!(help.contains(&format!("  {command} ")), "{command}: {help}");
        assert!(bash.contains(command) && fish.contains(command), "{command}");
        let page = std::fs::read_to_string(format!("{pages}/stallscope-{command}.1"));
        let page = page.expect("a page for each command");
        assert!(page.contains(".SH OPTIONS"), "{command}");
        let (code, help, _) = stallscope(&[command, "--help"]);
        assert_eq!(code, Some(0));
        // Each flag of the help is on the page.
        for flag in help.split_whitespace().filter_map(|word| word.strip_prefix("--")) {
            let flag: String =
                flag.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            let escaped = flag.replace('-', "\\-");
            assert!(flag.is_empty() || page.contains(&escaped), "{command}: --{flag}");
        }
    }
    let main = std::fs::read_to_string(format!("{pages}/stallscope.1")).expect("the main page");
    assert!(!main.contains("demo\\-service"), "what is hidden stays hidden");
}
