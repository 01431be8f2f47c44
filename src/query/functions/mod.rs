//! The functions that this crate adds to SQL, over boards, moves and the EVs of a step.
//!
//! [`functions`] lists them. They compute on Arrow arrays without DataFusion, so Rust callers get the same
//! results as SQL.
//!
//! Invariants:
//!
//! * A null argument gives a null result, with two exceptions. A null EV stands for an absent branch, and a null mask
//!   stands for 0.
//! * Values under nulls have no effect.
//! * A value out of range is an error that names the function, the argument, the range and the value.
//! * The result has one row per row of the arguments, and the type [`Function::return_type`].
//!
//! | file | owns |
//! | --- | --- |
//! | `function.rs` | a function: its name, arguments, documentation and calls |
//! | `list.rs` | the list of all functions |
//! | `arguments.rs` | arguments and their kinds; arrays of any numeric type as checked slices |
//! | `kernels.rs` | functions of boards that return a number or a board |
//! | `composite.rs` | functions of boards that return lists, structs or text |
//! | `masked.rs` | the rows that need the mask of tiles of 65,536, and functions that return masks |
//! | `evs.rs` | functions of the EVs of the four branches |

mod arguments;
mod composite;
mod evs;
mod function;
mod kernels;
mod list;
mod masked;
#[cfg(test)]
mod tests;

pub(crate) use arguments::ArgumentKind;
pub use function::Function;
pub use list::functions;
