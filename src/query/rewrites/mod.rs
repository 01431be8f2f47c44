//! Plan rewrites: optimizer rules of this crate, and workarounds for DataFusion's own rules.
//!
//! They run in this order:
//!
//! 1. Analyzer rules rewrite what DataFusion would evaluate wrongly: [`TypeLiterals`], [`CoerceSetOperations`] and
//!    [`TypeOuterReferences`] before its own rules; [`NullFields`], [`KeepLossyCasts`], [`RewriteIn`] and
//!    [`FallibleLast`] after them.
//! 2. DataFusion's logical rules run with fences ([`fenced_logical`]).
//! 3. Functions rewrite the optimized logical plan: [`group_by_numbers()`], [`guard_fallible`] and
//!    [`sort_by_columns()`].
//! 4. DataFusion's physical rules run with fences ([`fenced_physical`]), together with [`HideFalseProperties`] and
//!    [`YieldAboveJoins`].
//!
//! Invariant: a rewrite changes no result, except where DataFusion's own result would be wrong or an error.
//!
//! | file | owns |
//! | --- | --- |
//! | `in_and_subqueries.rs` | `IN` and scalar subqueries with SQL's rules for null |
//! | `fallible_conditions.rs` | conditions that can fail, evaluated last and only for the rows that need them |
//! | `fenced_rules.rs` | DataFusion's rules that give wrong answers, restricted to correct rewrites |
//! | `integer_types.rs` | literals beside uint64, 0 and 1 beside booleans, and the minus of unsigned integers |
//! | `group_by_numbers.rs` | GROUP BY on one number instead of several columns |
//! | `lossy_casts.rs` | casts that lose values, kept out of comparisons |
//! | `null_fields.rs` | fields of null structs |
//! | `packed_keys.rs`, `text_numbers.rs` | its encodings: small keys packed into 64 bits, texts as numbers |
//! | `false_properties.rs` | hiding properties that the engine claims wrongly: unique groups, constant columns |
//! | `outer_references.rs` | the types of columns that a correlated subquery takes from the outer query |
//! | `set_operations.rs` | common types for `INTERSECT` and `EXCEPT` |
//! | `sort_by_columns.rs` | sort keys as columns instead of expressions |
//! | `yield_above_joins.rs` | yielding above joins, so that a stopped query ends |
//! | `barrier.rs` | the plan node that blocks an optimization across it |
//! | `columns.rs` | input columns of a node; keeping the names of columns, and making unique ones |

mod barrier;
mod columns;
mod fallible_conditions;
mod false_properties;
mod fenced_rules;
mod group_by_numbers;
mod in_and_subqueries;
mod integer_types;
mod lossy_casts;
mod null_fields;
mod outer_references;
mod packed_keys;
mod set_operations;
mod sort_by_columns;
mod text_numbers;
mod yield_above_joins;

pub(super) use barrier::{BarrierExec, Purpose};
pub(super) use columns::map_expressions;
pub(super) use fallible_conditions::{FallibleLast, can_fail, guard_fallible, guarded_conjunction};
pub(super) use false_properties::{HideFalseProperties, physical_plan};
pub(super) use fenced_rules::{fenced_logical, fenced_physical};
pub(super) use group_by_numbers::group_by_numbers;
pub(super) use in_and_subqueries::RewriteIn;
pub(super) use integer_types::{TypeLiterals, TypeOperands, UNARY_MINUS};
pub(super) use lossy_casts::KeepLossyCasts;
pub(super) use null_fields::NullFields;
pub(super) use outer_references::TypeOuterReferences;
pub(super) use set_operations::CoerceSetOperations;
pub(super) use sort_by_columns::sort_by_columns;
pub(super) use yield_above_joins::YieldAboveJoins;
