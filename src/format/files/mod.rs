//! Access to bytes, NumPy files, databases and folders.
//!
//! | file | owns |
//! | --- | --- |
//! | `walk` | listing the files of a folder |
//! | `npy`, `mapped_rows`, `row_folder` | NumPy headers, reading and writing of NumPy rows |
//! | `bytes`, `mapped`, `sqlite`, `staged_folder`, `ordered` | access to bytes, databases and folders; parallel work |

pub(in crate::format) mod bytes;
pub(in crate::format) mod mapped;
pub(in crate::format) mod mapped_rows;
pub(crate) mod npy;
pub(in crate::format) mod ordered;
pub(in crate::format) mod row_folder;
pub(in crate::format) mod sqlite;
pub(in crate::format) mod staged_folder;
pub(in crate::format) mod walk;
