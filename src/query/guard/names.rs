//! Names and positions of columns that DataFusion rejects.
//!
//! apache/datafusion#19412 mended the same error for positions of aliased aggregates. USING has no known issue.

use crate::query::refused::name_of;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, OrderByExpr, Query, Select,
    SelectItem, TableFactor, VisitMut, VisitorMut, visit_expressions,
};
use std::ops::ControlFlow;

/// Replaces the position of a computed column in ORDER BY by the column's expression. With GROUP BY, DataFusion rejects
/// the position of an expression that is neither a key nor an aggregate, as in `SELECT engine, round(avg(max_score)) …
/// ORDER BY 2`.
pub(super) fn replace_position(key: &mut OrderByExpr, select: &Select) {
    let Expr::Value(position) = &key.expr else { return };
    if select.distinct.is_some() || select.group_by == GroupByExpr::Expressions(Vec::new(), Vec::new()) {
        return;
    }
    let Some(at) = position.to_string().parse().ok().and_then(|n: usize| n.checked_sub(1)) else { return };
    // A wildcard stands for several columns. A name may mean an alias instead of a column.
    let (mut names, mut has_wildcard) = (Vec::new(), false);
    for item in &select.projection {
        match item {
            SelectItem::UnnamedExpr(_) => {}
            SelectItem::ExprWithAlias { alias, .. } => names.push(name_of(alias)),
            _ => has_wildcard = true,
        }
    }
    let Some(SelectItem::UnnamedExpr(expr)) = select.projection.get(at).filter(|_| !has_wildcard) else { return };
    let is_alias = |part: &Expr| matches!(part, Expr::Identifier(name) if names.contains(&name_of(name)));
    let found =
        visit_expressions(expr, |part| if is_alias(part) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
    if !matches!(expr, Expr::Value(_)) && found.is_continue() {
        key.expr = expr.clone();
    }
}

/// Writes the first table before each key of USING in WHERE, because DataFusion takes such a key for ambiguous there,
/// as in `FROM steps JOIN runs USING (run_id) WHERE run_id = 2`.
pub(super) fn qualify_keys(select: &mut Select) {
    let [from] = select.from.as_slice() else { return };
    let table = match &from.relation {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => &alias.name,
        TableFactor::Table { name: ObjectName(parts), .. } => match parts.last() {
            Some(ObjectNamePart::Identifier(name)) => name,
            _ => return,
        },
        _ => return,
    };
    // In other joins, the first table may have nulls where the key has none.
    let keys = |operator: &JoinOperator| match operator {
        JoinOperator::Join(JoinConstraint::Using(keys))
        | JoinOperator::Inner(JoinConstraint::Using(keys))
        | JoinOperator::Left(JoinConstraint::Using(keys))
        | JoinOperator::LeftOuter(JoinConstraint::Using(keys)) => Some(keys.clone()),
        _ => None,
    };
    let Some(keys) = from.joins.iter().map(|join| keys(&join.join_operator)).collect::<Option<Vec<_>>>() else {
        return;
    };
    // A later join may have keys that the first table lacks.
    let Some(keys) = keys.into_iter().next() else { return };
    let _ = VisitMut::visit(&mut select.selection, &mut Qualify { table: table.clone(), keys, depth: 0 });
}

/// Qualifies keys, but not in subqueries, whose tables may have columns of the same names.
struct Qualify {
    table: Ident,
    keys: Vec<ObjectName>,
    /// The number of subqueries around the current expression.
    depth: usize,
}

impl VisitorMut for Qualify {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr
            && self.depth == 0
            && self.keys.iter().any(
                |key| matches!(key.0.as_slice(), [ObjectNamePart::Identifier(key)] if name_of(key) == name_of(name)),
            )
        {
            *expr = Expr::CompoundIdentifier(vec![self.table.clone(), name.clone()]);
        }
        ControlFlow::Continue(())
    }
}
