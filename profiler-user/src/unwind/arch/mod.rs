//! What differs between processors; one file each, with the same names in it.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::Registers;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{
    ELF_MACHINE, FRAME_POINTER, RED_ZONE, REGISTERS, RETURN_ADDRESS, STACK_POINTER,
    frame_pointer_slots,
};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("unwind/arch has no file for this architecture yet");
