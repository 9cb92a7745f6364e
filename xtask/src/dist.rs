//! `dist`.
use anyhow::Result;
use clap::Args;
#[derive(Args)]
pub(crate) struct Options {}
pub(crate) fn run(_: &Options) -> Result<()> { Ok(()) }
