//! As native.c, in Rust. `LAST` stands for names that have their last segment only.
use std::arch::asm;
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

fn report(here: usize, line: u32, chain: &str) {
    println!("{:#x} {line} {chain}", here - 1);
}

#[inline(always)]
fn inlined() {
    let here: usize; unsafe { asm!("lea {}, [rip]", out(reg) here) }; let line = line!();
    report(here, line, "native::inlined < native::outer");
}

#[inline(never)]
pub fn outer() {
    inlined();
    let here: usize; unsafe { asm!("lea {}, [rip]", out(reg) here) }; let line = line!();
    report(here, line, "native::outer");
}

struct Job;

impl Future for Job {
    type Output = ();
    #[inline(never)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let here: usize; unsafe { asm!("lea {}, [rip]", out(reg) here) }; let line = line!();
        report(here, line, "<native::Job as core::future::future::Future>::poll");
        Poll::Ready(())
    }
}

fn main() {
    outer();
    let mut job = Job;
    let _ = Pin::new(&mut job).poll(&mut Context::from_waker(Waker::noop()));
    println!("ready");
    std::io::stdout().flush().expect("stdout");
    loop {
        std::thread::park();
    }
}
