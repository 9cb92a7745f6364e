//! One stall split among its stacks, so that what every format shows sums to its duration.

use crate::blame::{Stack, Stall};
use crate::stalls::Cause;

/// A part of a stall.
#[derive(Debug, Clone, Copy)]
pub struct Share<'a> {
    /// What the thread was doing.
    pub cause: Cause,
    /// Where; `None` for time of the cause that no captured stack covers.
    pub stack: Option<&'a Stack>,
    /// Whether the cause has stacks, though none for this part.
    pub uncovered: bool,
    /// How long, never 0.
    pub ns: u64,
}

/// The parts of a stall, in the order of its causes and stacks. They sum to its duration: stacks are
/// scaled down where they claim more than the ledger gives their cause, and what they leave over is
/// a part without a stack.
#[must_use]
pub fn shares(stall: &Stall) -> Vec<Share<'_>> {
    let mut shares = Vec::with_capacity(stall.stacks.len() + 2);
    let mut unaccounted = stall.duration_ns;
    for cause in Cause::ALL {
        let mut ns = stall.ledger.get(cause).min(unaccounted);
        unaccounted -= ns;
        if cause == Cause::Unexplained {
            ns += unaccounted;
        }
        if ns > 0 {
            split(stall, cause, ns, &mut shares);
        }
    }
    shares
}

fn split<'a>(stall: &'a Stall, cause: Cause, ns: u64, shares: &mut Vec<Share<'a>>) {
    let stacks = || stall.stacks.iter().filter(|stack| stack.cause == cause);
    let claimed: u128 = stacks().map(|stack| u128::from(stack.total_ns)).sum();
    let available = u128::from(ns);
    let (mut sum, mut given) = (0_u128, 0_u128);
    let mut push = |stack: Option<&'a Stack>, uncovered, ns: u128| {
        // Never more than the ledger entry it was taken from, which fits.
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        if ns > 0 {
            shares.push(Share { cause, stack, uncovered, ns });
        }
    };
    let mut any = false;
    for stack in stacks() {
        any = true;
        sum += u128::from(stack.total_ns);
        // What all stacks up to this one get; only stacks that claim too much are scaled.
        let upto = if claimed > available { sum * available / claimed } else { sum };
        push(Some(stack), false, upto - given);
        given = upto;
    }
    push(None, any, available - given);
}
