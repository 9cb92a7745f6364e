//! Ledger and stacks to a verdict: cause, blocker, advice. No I/O.

mod advice;
mod blocker;
mod detail;
mod doing;
mod lock;
mod outside;
mod parts;
mod resource;
mod verdict;
pub(crate) mod words;

pub use advice::{advise, advise_on_deadlock, advise_on_lock_asleep, advise_without_lock};
pub use blocker::{NamedStack, blocker};
pub use detail::{busiest_call, detail};
pub use doing::waits_for_file;
pub use lock::{Waiting, owner_words, waiting};
pub use outside::outside;
pub use parts::{NO_NAME, Part, parts};
pub use resource::{is_name_server, resource_text, task_name};
pub use verdict::{Blocker, Boundary, Holder, Outside, Runtime, Stack, Stall, SyscallUse, Task};
pub use words::Word;
