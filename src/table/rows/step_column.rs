//! The columns that come from a row's [`Step`](crate::Step): one table of their names, types and shapes.
//!
//! To add a column to batches, add a variant here and its pointer in `column_pointers.rs`. The schema, the buffers, the
//! views, Arrow and Python follow from this table. The compiler reports each place that a new variant misses, and the
//! kernel tests compare the kernels with the reference implementation `naive_values`.

use crate::table::rows::element::ElementType;

/// A column that is computed from a row's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) enum StepColumn {
    /// The sixteen exponents of the board.
    Tokens,
    Move,
    EvValues,
    /// The four bits of the legality mask, one bool each.
    EvLegal,
    RunId,
    StepIndex,
    Board,
    /// The legality mask as a number, in columns of a whole table only.
    EvLegalMask,
}

impl StepColumn {
    /// The columns of a batch, in order.
    pub(in crate::table) const BATCH: [StepColumn; 7] = [
        StepColumn::Tokens,
        StepColumn::Move,
        StepColumn::EvValues,
        StepColumn::EvLegal,
        StepColumn::RunId,
        StepColumn::StepIndex,
        StepColumn::Board,
    ];

    /// The columns of a whole table: the fields of a [`Step`](crate::Step), in their order.
    pub(in crate::table) const TABLE: [StepColumn; 6] = [
        StepColumn::Board,
        StepColumn::EvValues,
        StepColumn::RunId,
        StepColumn::StepIndex,
        StepColumn::Move,
        StepColumn::EvLegalMask,
    ];

    /// Returns the column's name, the type of its values, and the number of values per row.
    pub(in crate::table) fn shape(self, tokens: ElementType) -> (&'static str, ElementType, usize) {
        match self {
            StepColumn::Tokens => ("tokens", tokens, 16),
            StepColumn::Move => ("move", ElementType::UInt8, 1),
            StepColumn::EvValues => ("ev_values", ElementType::Float32, 4),
            StepColumn::EvLegal => ("ev_legal", ElementType::Bool, 4),
            StepColumn::RunId => ("run_id", ElementType::UInt32, 1),
            StepColumn::StepIndex => (STEP_INDEX, ElementType::UInt16, 1),
            StepColumn::Board => ("board", ElementType::UInt64, 1),
            StepColumn::EvLegalMask => ("ev_legal", ElementType::UInt8, 1),
        }
    }

    fn name(self) -> &'static str {
        self.shape(ElementType::UInt8).0
    }
}

/// The extra column with the cells that hold 65,536: bit `i` for cell `i`. Tokens of these cells are 16, and symmetries
/// turn the mask with the board.
pub(in crate::table) const TILE_MASK: &str = "tile_65536_mask";

/// The column of step indices. It is a field of every row, and an extra column, uint32, if an index exceeds 65,535.
pub(in crate::table) const STEP_INDEX: &str = "step_index";

/// Returns whether every batch or every whole table has a column of this name, so that no other column can have it.
pub(in crate::table) fn is_reserved(name: &str) -> bool {
    StepColumn::BATCH.iter().chain(&StepColumn::TABLE).any(|column| column.name() == name)
}
