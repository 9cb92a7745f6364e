//! The unwinder against real processes, and against framehop; needs to ptrace its own children.

#[path = "unwind/garbage.rs"]
mod garbage;
#[path = "unwind/second_opinion.rs"]
mod second_opinion;
#[path = "unwind/target.rs"]
mod target;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use second_opinion::Framehop;
use stallscope::binaries::ProcessMaps;
use stallscope::unwind::{LiveModules, StackEnd, Unwinder, UnwoundStack};
use target::{Target, eventually, names};

const WHOLE: u64 = 8 << 20;
const CAPTURE: u64 = 36 << 10;

fn unwinder() -> Unwinder {
    Unwinder::new(Box::new(LiveModules))
}

fn unwind(
    target: &Target,
    maps: &ProcessMaps,
    limit: u64,
    unwinder: &mut Unwinder,
) -> UnwoundStack {
    let regs = target.registers();
    let stack = target.copy_stack(maps, regs.sp(), limit);
    unwinder.unwind(maps, &regs, &mut |address| stack.read(address))
}

fn unwind_once(target: &mut Target, limit: u64) -> (UnwoundStack, ProcessMaps) {
    target.stop();
    let maps = target.maps();
    (unwind(target, &maps, limit, &mut unwinder()), maps)
}

/// What comparing with framehop found.
#[derive(Debug, Default)]
struct Comparison {
    stacks: usize,
    complete: usize,
    framehop_complete: usize,
    /// Of those, framehop has one frame more, after a leaf without information.
    guessed: usize,
}

/// Samples a running target; where framehop gets to the program's start, it must agree.
fn compare(target: &mut Target, samples: usize) -> Comparison {
    target.stop();
    let maps = target.maps();
    let (mut ours, mut framehop) = (unwinder(), Framehop::new(&maps));
    let entry = entry_of(&maps);
    let mut result = Comparison::default();
    for _ in 0..samples {
        let maps = target.maps();
        let regs = target.registers();
        let copy = target.copy_stack(&maps, regs.sp(), WHOLE);
        let before = ours.counters().frame_pointer_frames;
        let stack = ours.unwind(&maps, &regs, &mut |address| copy.read(address));
        let other = framehop.unwind(&regs, |address| copy.read(address));
        let ips: Vec<_> = stack.frames.iter().map(|f| f.ip).collect();
        result.stacks += 1;
        result.complete += usize::from(stack.end == StackEnd::Complete);
        let at_start = |ip: &u64| (entry..entry + 64).contains(ip);
        if other.ended && other.ips.last().is_some_and(at_start) {
            result.framehop_complete += 1;
            // In a leaf without information framehop takes the top of the stack for the return
            // address, true or not; here the frame pointer decides, and may skip the caller.
            let by_frame_pointer = ours.counters().frame_pointer_frames > before;
            if by_frame_pointer && ips.len() + 1 == other.ips.len() {
                result.guessed += 1;
                assert_eq!((ips[0], &ips[1..]), (other.ips[0], &other.ips[2..]));
            } else {
                let place = |ip: &u64| {
                    maps.find(*ip).map(|m| format!("{}+{:#x}", m.path, m.file_offset(*ip)))
                };
                let places: Vec<_> = ips.iter().map(place).collect();
                assert_eq!(
                    ips, other.ips,
                    "framehop differs; ours ends {:?}: {places:#?}",
                    stack.end
                );
            }
        }
        if stack.end == StackEnd::Complete {
            assert!(at_start(ips.last().expect("frames")), "complete without the start");
        }
        target.run_on();
        std::thread::sleep(Duration::from_millis(3));
        target.stop();
    }
    result
}

/// The address of the program's entry point (the first executable mapping is the program's).
fn entry_of(maps: &ProcessMaps) -> u64 {
    let auxv = std::fs::read(format!("/proc/{}/auxv", maps.pid)).expect("auxv");
    let words: Vec<_> =
        auxv.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().expect("8 bytes"))).collect();
    let pair = words.chunks_exact(2).find(|pair| pair[0] == libc::AT_ENTRY);
    pair.expect("AT_ENTRY")[1]
}

/// The program's own functions in a stack, leaf first, recursion as one.
fn own_names(stack: &UnwoundStack, maps: &ProcessMaps) -> Vec<String> {
    let mut own = names(stack, maps);
    // It may still be returning from telling that it is ready.
    own.retain(|name| !["?", "arrived"].contains(&&**name));
    own.dedup();
    own
}

#[track_caller]
fn assert_names(stack: &UnwoundStack, maps: &ProcessMaps, expected: &[&str]) {
    assert_eq!(own_names(stack, maps), expected, "{stack:x?}");
}

#[test]
fn realigned_frames_and_variable_arrays_lead_to_the_start() {
    let mut target = Target::stacks("realigned");
    let (stack, maps) = unwind_once(&mut target, CAPTURE);
    assert_eq!(stack.end, StackEnd::Complete, "{stack:x?}");
    assert_names(&stack, &maps, &["wait_forever", "realigned_wait", "main", "_start"]);
    let depth = names(&stack, &maps).iter().filter(|n| *n == "realigned_wait").count();
    assert_eq!(depth, 6);
}

#[test]
fn every_instruction_can_be_unwound() {
    let mut target = Target::stacks("step");
    target.stop();
    let maps = target.maps();
    let (mut unwinder, mut framehop) = (unwinder(), Framehop::new(&maps));
    let mut agreed = 0;
    for step in 0..12_000 {
        let regs = target.registers();
        let copy = target.copy_stack(&maps, regs.sp(), CAPTURE);
        let stack = unwinder.unwind(&maps, &regs, &mut |address| copy.read(address));
        assert_eq!(stack.end, StackEnd::Complete, "{stack:x?} {:x?}", regs);
        let other = framehop.unwind(&regs, |address| copy.read(address));
        let ips: Vec<_> = stack.frames.iter().map(|f| f.ip).collect();
        // framehop loses realigned frames (the dynamic linker's resolver is one); where it loses
        // none it must agree.
        if other.ips.last() == ips.last() && other.ips.len() >= ips.len() {
            assert_eq!(ips, other.ips);
            agreed += 1;
        }
        if step % 7 == 0 {
            let mut own = own_names(&stack, &maps);
            own.reverse();
            let chain = ["_start", "main", "step", "realigned", "variable_array", "calls"];
            assert!(own.len() >= 3 && chain[..own.len()] == own, "{own:?} {stack:x?}");
        }
        target.single_step();
    }
    assert!(agreed > 1000, "{agreed}");
    assert_eq!(unwinder.counters().frame_pointer_frames, 0);
}

#[test]
fn a_signal_handler_leads_to_what_it_interrupted() {
    let mut target = Target::stacks("signal");
    let (stack, maps) = unwind_once(&mut target, CAPTURE);
    assert_eq!(stack.end, StackEnd::Complete, "{stack:x?}");
    let own = ["wait_forever", "handler", "interrupted", "on_signal", "main", "_start"];
    assert_names(&stack, &maps, &own);
}

#[test]
fn a_fault_on_its_own_signal_stack_is_looked_up_at_the_instruction() {
    let mut target = Target::stacks("fault");
    target.stop();
    let (maps, regs, memory) = (target.maps(), target.registers(), target.memory());
    let stack = unwinder().unwind(&maps, &regs, &mut |address| {
        let mut word = [0; 8];
        memory.read_exact_at(&mut word, address).ok()?;
        Some(u64::from_le_bytes(word))
    });
    assert_eq!(stack.end, StackEnd::Complete, "{stack:x?}");
    assert_names(
        &stack,
        &maps,
        &["wait_forever", "handler", "fault", "on_signal", "main", "_start"],
    );
    let at = names(&stack, &maps).iter().position(|n| n == "fault").expect("found");
    let (trampoline, interrupted, called) =
        (stack.frames[at - 1], stack.frames[at], stack.frames[at + 1]);
    assert_eq!(trampoline.lookup, trampoline.ip);
    assert_eq!(interrupted.lookup, interrupted.ip);
    assert_eq!(called.lookup, called.ip - 1);
}

#[test]
fn the_vdso_leads_to_its_caller() {
    let mut target = Target::stacks("clock");
    let mut unwinder = unwinder();
    target.stop();
    let maps = target.maps();
    let vdso = maps.all().iter().find(|m| &*m.path == "[vdso]").expect("a vdso");
    let mut inside = 0;
    for _ in 0..200 {
        let stack = unwind(&target, &maps, CAPTURE, &mut unwinder);
        assert_eq!(stack.end, StackEnd::Complete, "{stack:x?}");
        assert_names(&stack, &maps, &["clock_loop", "main", "_start"]);
        inside += usize::from((vdso.start..vdso.end).contains(&stack.frames[0].ip));
        for _ in 0..7 {
            target.single_step();
        }
    }
    assert!(inside > 20, "{inside}");
}

#[test]
fn a_copy_that_is_too_short_keeps_its_frames() {
    let mut target = Target::stacks("deep");
    let (stack, maps) = unwind_once(&mut target, CAPTURE);
    assert_eq!(stack.end, StackEnd::MemoryNotCaptured);
    assert_eq!(stack.end.reason(), Some("stack copy ends here"));
    assert_names(&stack, &maps, &["wait_forever", "deep"]);
    assert!(stack.frames.len() > 100, "{}", stack.frames.len());
    let whole = unwind(&target, &maps, WHOLE, &mut unwinder());
    assert_eq!((whole.end, whole.frames.len()), (StackEnd::TooDeep, 512));
}

#[test]
fn code_without_information_is_crossed_by_frame_pointer() {
    let mut target = Target::stacks("bare");
    let (stack, maps) = unwind_once(&mut target, CAPTURE);
    assert_eq!(stack.end, StackEnd::Complete, "{stack:x?}");
    assert_names(&stack, &maps, &["spin", "bare", "main", "_start"]);
    let mut target = Target::stacks("jit");
    let (stack, maps) = unwind_once(&mut target, CAPTURE);
    assert_eq!(stack.end, StackEnd::Complete, "{stack:x?}");
    assert_names(&stack, &maps, &["wait_forever", "jit", "main", "_start"]);
}

#[test]
fn a_thread_ends_at_its_start() {
    let mut target = Target::stacks("thread").newest_thread();
    let (stack, maps) = unwind_once(&mut target, CAPTURE);
    assert_eq!(stack.end, StackEnd::Complete, "{stack:x?}");
    assert_names(&stack, &maps, &["spin", "realigned_wait", "thread"]);
}

#[test]
fn python_agrees_with_framehop() {
    let home = std::env::var("HOME").unwrap_or_default();
    let pyenv = format!("{home}/.pyenv/versions/3.11.7/bin/python3");
    let python = if Path::new(&pyenv).exists() { &*pyenv } else { "/usr/bin/python3" };
    let script = "import json,re,hashlib\nprint('ready',flush=True)\n\
                  while 1:\n  sorted(json.loads(json.dumps(list(range(3000)))),key=lambda x:-x)\n  \
                  re.sub('a+','b','aab'*3000); hashlib.sha256(b'x'*300000).hexdigest()";
    let mut target = Target::start(Command::new(python).args(["-c", script]));
    let result = compare(&mut target, 300);
    assert_eq!(result.complete, result.stacks, "{result:?}");
    assert!(result.framehop_complete * 2 > result.stacks, "{result:?}");
}

#[test]
fn node_is_crossed_through_its_compiled_code() {
    if !Path::new("/usr/bin/node").exists() {
        return;
    }
    let script = "console.log('ready'); function busy(n){let s=0;for(let i=0;i<n;i++)s+=Math.sqrt(i);\
                  return JSON.stringify([...Array(n%500).keys()].map(x=>x*s)).length}\
                  setInterval(()=>{for(let i=0;i<200;i++)busy(20000+i)},0)";
    let mut target = Target::start(Command::new("/usr/bin/node").args(["-e", script]));
    std::thread::sleep(Duration::from_millis(300));
    let result = compare(&mut target, 300);
    assert!(result.guessed * 10 < result.stacks, "{result:?}");
    assert!(result.complete * 100 >= result.stacks * 95, "{result:?}");
}

#[test]
fn an_idle_redis_agrees_with_framehop() {
    if !Path::new("/usr/bin/redis-server").exists() {
        return;
    }
    let socket = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unwind-redis.socket");
    let mut command = Command::new("/usr/bin/redis-server");
    command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
    let mut target = Target::start(&mut command);
    let syscall = format!("/proc/{}/syscall", target.pid());
    let epoll_wait = format!("{} ", libc::SYS_epoll_wait);
    eventually(|| std::fs::read_to_string(&syscall).is_ok_and(|s| s.starts_with(&epoll_wait)));
    let result = compare(&mut target, 30);
    assert_eq!((result.complete, result.framehop_complete), (30, 30), "{result:?}");
}
