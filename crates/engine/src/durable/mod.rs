//! What an acknowledged sync is worth, and when base may be written.
//!
//! The rules, by their numbers in `docs/write-back.md`, and where each is kept:
//! - R1, R2 and the lease, before any write of base: [`lease`].
//! - R3, a block is used again only when no durable entry that could win names it: the ledger in
//!   core, asked by [`commit`].
//! - R4, clean only after base was synced: `writeback::destage`, with [`sync`].
//! - R5, what `fsync` does: [`sync`], which ends in a [`commit`].
//! - R6, a cut or an unlink is announced before base changes: `files::cut`, `files::names`.

pub(crate) mod commit;
pub(crate) mod lease;
pub(crate) mod sync;
pub(crate) mod turns;
