//! Kernel records to stalls: joins the captures of a turn with its ledger. No I/O.

mod ledger;

pub use ledger::{Cause, Ledger};
