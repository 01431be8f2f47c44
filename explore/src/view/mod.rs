//! The explorer: a server for one browser on the same machine, and the page that it serves.
//!
//! The entry point is `View::start`. The server checks each request: it needs the token of this start and a
//! host name of this machine, and its origin must not be another site. The server only reads the archive. A dropped
//! request cancels its work.
//!
//! | file | owns |
//! | --- | --- |
//! | `server.rs` | the socket, the connections, the function of each address, the shutdown |
//! | `access.rs` | access control: token, host, origin; the headers of all responses |
//! | `request.rs` | failures and cancellation of requests |
//! | `explorer.rs` | shared state: the archive, and the limits of queries; bodies of requests |
//! | `addresses/` | one file for each kind of address: the archive, runs, games, statements, reports |

mod access;
mod addresses;
mod explorer;
mod request;
mod server;

pub use explorer::LivePolicy;
pub use server::{View, ViewOptions};
