//! The examples in `docs/examples` are made by the code: `UPDATE_GOLDEN=1 cargo test --test commands`
//! writes them anew.

use std::path::PathBuf;

use stallscope::report::Format;

use crate::samples::{gil, requests, sleeping, starved, tokio};
use crate::{Folder, stallscope};

fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/examples")
}

/// Where an example lies, as an argument.
fn example(name: &str) -> String {
    examples().join(name).to_str().expect("a path in UTF-8").to_owned()
}

/// What is text and changes only if its format does is compared; the rest must be there and be read.
#[test]
fn examples_in_the_docs_are_made_by_the_code() {
    let folder = Folder::new("examples");
    let before = [requests(100, 180), requests(900, 240), tokio(2_000), gil(8_000)];
    let after = [tokio(1_000), gil(2_000), sleeping(4_000, 950, false), starved(9_000)];
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(examples()).expect("a folder");
        for (name, stalls) in [("before.stall", &before), ("after.stall", &after)] {
            std::fs::copy(folder.record(name, stalls), examples().join(name)).expect("copied");
        }
        for format in Format::ALL.into_iter().filter(|format| *format != Format::Recording) {
            let output = example(&format!("before.{}", format.ending()));
            let (code, _, stderr) =
                stallscope(&["report", &example("before.stall"), "--output", &output]);
            assert_eq!(code, Some(0), "{stderr}");
        }
    }
    let (code, text, stderr) = stallscope(&["report", &example("before.stall")]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(text.contains("4 stalls"), "{text}");
    for format in Format::ALL {
        let file = example(&format!("before.{}", format.ending()));
        assert!(std::fs::metadata(&file).is_ok_and(|file| file.len() > 100), "{file}");
    }
    for ending in ["folded", "speedscope.json"] {
        let output = folder.path(&format!("x.{ending}"));
        stallscope(&["report", &example("before.stall"), "--output", &output]);
        let golden = std::fs::read(example(&format!("before.{ending}"))).expect("an example");
        let now = std::fs::read(&output).expect("written");
        assert!(golden == now, "{ending} has changed: write the examples anew");
    }
}
