//! The table whose rows a plan returns, and the columns that identify them.

use datafusion::common::{Column, DFSchema, JoinType};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, Operator};

const MODEL: &str = "model";

/// The table that identifies each row of a plan. Each of its rows occurs at most once.
pub(super) struct RowOrigin {
    table: String,
    /// For each column of the plan, the column of the table that it copies.
    columns: Vec<Option<String>>,
    /// Columns of the table that have the same value in all rows.
    constants: Vec<String>,
}

/// Returns the columns that identify a row, for each table of an archive.
fn keys_of(table: &str) -> Option<&'static [&'static str]> {
    match table {
        "runs" => Some(&["run_id"]),
        "steps" => Some(&["run_id", "step_index"]),
        "annotations" => Some(&[MODEL, "run_id", "step_index"]),
        _ => None,
    }
}

impl RowOrigin {
    /// Returns the origin of a plan's rows; `None` if its rows are not rows of one of the archive's tables.
    pub(super) fn of(plan: &LogicalPlan) -> Option<RowOrigin> {
        RowOrigin::under(plan, &[])
    }

    /// Returns the positions of the columns that identify a row; `None` if the plan lacks one of them. Omits a
    /// constant model, because run and step then identify a row.
    pub(super) fn keys(&self) -> Option<Vec<usize>> {
        let is_needed = |key: &&&str| **key != MODEL || !self.constants.iter().any(|constant| constant == MODEL);
        let position = |key: &&str| self.columns.iter().position(|column| column.as_deref() == Some(key));
        keys_of(&self.table)?.iter().filter(is_needed).map(position).collect()
    }

    /// Returns the origin of those rows of `plan` that meet `conditions`.
    fn under(plan: &LogicalPlan, conditions: &[&Expr]) -> Option<RowOrigin> {
        match plan {
            LogicalPlan::TableScan(scan) => {
                let table = scan.table_name.table().to_owned();
                keys_of(&table)?;
                let columns = scan.projected_schema.fields().iter().map(|field| Some(field.name().clone())).collect();
                Some(RowOrigin { table, columns, constants: Vec::new() })
            }
            LogicalPlan::Projection(projection) => {
                let input = RowOrigin::under(&projection.input, &[])?;
                let of_input = |expr: &Expr| {
                    let mut expr = expr;
                    while let Expr::Alias(alias) = expr {
                        expr = &alias.expr;
                    }
                    input.column(expr, projection.input.schema())
                };
                let columns = projection.expr.iter().map(of_input).collect();
                Some(RowOrigin { columns, ..input })
            }
            LogicalPlan::Filter(filter) => {
                let mut all = split_conjunction(&filter.predicate);
                all.extend(conditions);
                let mut origin = RowOrigin::under(&filter.input, &all)?;
                origin.add_constants(&all, filter.input.schema());
                Some(origin)
            }
            LogicalPlan::Sort(sort) => RowOrigin::under(&sort.input, conditions),
            // These conditions do not hold for the rows that the LIMIT counts.
            LogicalPlan::Limit(limit) => RowOrigin::under(&limit.input, &[]),
            LogicalPlan::SubqueryAlias(alias) => RowOrigin::under(&alias.input, &[]),
            LogicalPlan::Join(join) => {
                let keeps_left = RowOrigin::of_join(join, true, conditions);
                keeps_left.or_else(|| RowOrigin::of_join(join, false, conditions))
            }
            _ => None,
        }
    }

    /// Returns the origin of a join that returns each row of one side at most once.
    fn of_join(join: &Join, is_left: bool, conditions: &[&Expr]) -> Option<RowOrigin> {
        let keeps = match join.join_type {
            JoinType::Inner => true,
            JoinType::Left => is_left,
            JoinType::Right => !is_left,
            _ => false,
        };
        if !keeps {
            return None;
        }
        let (kept, other) = if is_left { (&join.left, &join.right) } else { (&join.right, &join.left) };
        let mut of_other = RowOrigin::under(other, &[])?;
        // Pairs meet the condition of the join, also in an outer join.
        let on: Vec<&Expr> = join.filter.iter().flat_map(split_conjunction).collect();
        of_other.add_constants(&on, other.schema());
        of_other.add_constants(conditions, other.schema());
        let mut equal: Vec<&Expr> = join.on.iter().map(|(left, right)| if is_left { right } else { left }).collect();
        for condition in on {
            if let Expr::BinaryExpr(binary) = condition
                && binary.op == Operator::Eq
            {
                let is_of = |expr: &Expr, side: &LogicalPlan| {
                    expr.column_refs().iter().all(|column| side.schema().has_column(column))
                };
                for (a, b) in [(&binary.left, &binary.right), (&binary.right, &binary.left)] {
                    if is_of(a, other) && is_of(b, kept) {
                        equal.push(a);
                    }
                }
            }
        }
        let equal: Vec<String> = equal.into_iter().filter_map(|expr| of_other.column(expr, other.schema())).collect();
        let is_fixed = |key: &&str| of_other.constants.iter().chain(&equal).any(|column| column == key);
        if !keys_of(&of_other.table)?.iter().all(is_fixed) {
            return None;
        }
        let mut origin = RowOrigin::under(kept, if join.join_type == JoinType::Inner { conditions } else { &[] })?;
        let of_other = vec![None; other.schema().fields().len()];
        origin.columns =
            if is_left { [origin.columns, of_other].concat() } else { [of_other, origin.columns].concat() };
        Some(origin)
    }

    /// Returns the column of the table that an expression over the plan's columns copies.
    fn column(&self, expr: &Expr, schema: &DFSchema) -> Option<String> {
        let Expr::Column(column) = expr else { return None };
        self.columns.get(index_of(column, schema)?)?.clone()
    }

    /// Adds the columns that equal a literal by one of the conditions.
    fn add_constants(&mut self, conditions: &[&Expr], schema: &DFSchema) {
        for condition in conditions {
            if let Expr::BinaryExpr(binary) = condition
                && binary.op == Operator::Eq
            {
                for (column, value) in [(&binary.left, &binary.right), (&binary.right, &binary.left)] {
                    if matches!(value.as_ref(), Expr::Literal(..)) {
                        self.constants.extend(self.column(column, schema));
                    }
                }
            }
        }
    }
}

fn index_of(column: &Column, schema: &DFSchema) -> Option<usize> {
    schema.has_column(column).then(|| schema.maybe_index_of_column(column)).flatten()
}
