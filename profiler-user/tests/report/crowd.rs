//! A stall that is not one slow callback.

use stallscope::blame::{Part, Stall, Task};
use stallscope::stalls::Cause;
use stallscope::symbolize::Frame;

use crate::samples::{MS, asyncio_root, bare, blocker, python, stack};

/// A turn that served many requests, none of them slow.
pub(crate) fn crowd(at_ms: u64) -> Stall {
    let at = |coroutine: &str, line| python(coroutine, "/srv/shop/app/handlers.py", line, true);
    let (price, stock) = (at("price", 71), at("stock", 80));
    let stack = |cause, ms, samples, frame: &Frame| {
        stack(cause, ms * MS, samples, [asyncio_root(), vec![frame.clone()]].concat())
    };
    let part = |cause, tasks, frame: &Frame, ms: u64| Part {
        cause,
        coroutine: Some(frame.function.clone()),
        tasks,
        function: frame.function.clone(),
        file: frame.file.clone(),
        line: frame.line,
        total_ns: ms * MS,
        share: ms as f64 / 92.0,
    };
    let entries = [(Cause::Cpu, 53 * MS), (Cause::Syscall, 30 * MS), (Cause::Runqueue, 9 * MS)];
    Stall {
        blocker: Some(blocker(&price, 1.0)),
        stacks: vec![
            stack(Cause::Cpu, 40, 40, &price),
            stack(Cause::Syscall, 30, 5, &stock),
            stack(Cause::Cpu, 13, 13, &price),
        ],
        parts: vec![part(Cause::Cpu, 14, &price, 53), part(Cause::Syscall, 5, &stock, 30)],
        task: Some(Task { name: "price-3".into(), chain: vec!["price".into()] }),
        ..bare(at_ms, &entries)
    }
}
