//! Plan rewrites: optimizer rules of this crate, and corrections of DataFusion's own.
//!
//! They run in this order:
//!
//! 1. Analyzer rules: [`TYPE_LITERALS`] before DataFusion's own rules, [`KEEP_VALUES`] after them.
//! 2. DataFusion's logical rules, restricted ([`logical_rules`]).
//! 3. [`sort_lists()`] and [`group_by_numbers()`] on the optimized logical plan.
//! 4. DataFusion's physical rules, restricted, with two more ([`physical_rules`]).
//!
//! Invariant: a rewrite changes no result, except where DataFusion's own result would be wrong or an error.
//! Statements that no rewrite corrects are refused (`refused.rs`).
//!
//! | file | owns |
//! | --- | --- |
//! | `engine_rules.rs` | DataFusion's rules that give wrong answers, restricted to correct rewrites; rules that replace single nodes |
//! | `opaque.rs` | the plan node that hides something of its input from the optimizer |
//! | `values.rs` | values that the simplifier would change, and divisions by zero |
//! | `integer_types.rs` | literals beside uint64, 0 and 1 beside booleans, and the minus of unsigned integers |
//! | `sort_lists.rs` | `array_agg` and `string_agg` with ORDER BY as lists that are sorted later |
//! | `group_by_numbers.rs` | GROUP BY on one number instead of several columns |
//! | `packed_keys.rs`, `text_numbers.rs` | its encodings: small keys packed into 64 bits, texts as numbers |
//! | `columns.rs` | input columns of a node; analyzer rules that keep the names of columns |

mod columns;
mod engine_rules;
mod group_by_numbers;
mod integer_types;
mod opaque;
mod packed_keys;
mod sort_lists;
mod text_numbers;
mod values;

pub(super) use columns::{ExprRule, input_schema};
pub(super) use engine_rules::{NodeRule, logical_rules, physical_rules};
pub(super) use group_by_numbers::group_by_numbers;
pub(super) use integer_types::{TYPE_LITERALS, TypeOperands, UNARY_MINUS};
pub(super) use opaque::{Hides, OpaqueExec};
pub(super) use packed_keys::KeyBits;
pub(super) use sort_lists::sort_lists;
pub(super) use text_numbers::TextDictionary;
pub(super) use values::KEEP_VALUES;
