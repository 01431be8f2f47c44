//! Maintenance of an archive.
//!
//! | file | owns |
//! | --- | --- |
//! | `compact.rs`, `expire.rs` | merging small files; removing old versions and unreferenced files |
//! | `restore.rs`, `adoption.rs`, `sound_file.rs` | a new version from an older one and from files that no manifest lists |
//! | `verify.rs`, `verify_versions.rs`, `verify_file.rs`, `verify_tables.rs` | finding problems |

mod adoption;
pub(in crate::archive) mod compact;
pub(in crate::archive) mod expire;
pub(in crate::archive) mod restore;
pub(in crate::archive) mod sound_file;
pub(in crate::archive) mod verify;
pub(in crate::archive) mod verify_file;
pub(in crate::archive) mod verify_tables;
pub(in crate::archive) mod verify_versions;
