mod error;
mod board;
mod step;
mod run;
mod format;
pub use error::*; pub use board::*; pub use run::*; pub use step::*; pub use format::*;
