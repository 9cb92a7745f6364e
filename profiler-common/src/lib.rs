//! What crosses the boundary between stallscope's kernel programs and its daemon.
#![no_std]

pub mod cause;
