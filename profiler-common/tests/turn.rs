//! The state machine of a turn, driven on the host as the kernel programs drive it.

#[path = "turn/arbitrary.rs"]
mod arbitrary;
#[path = "turn/drive.rs"]
mod drive;
#[path = "turn/history.rs"]
mod history;
#[path = "turn/legal.rs"]
mod legal;
#[path = "turn/model.rs"]
mod model;
#[path = "turn/rules.rs"]
mod rules;
#[path = "turn/scripts.rs"]
mod scripts;
#[path = "turn/stacks.rs"]
mod stacks;
