//! Details of steps that only the Macroxue engine records.

/// Details of one step. `None` = not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepDetail<'a> {
    /// The kind of evaluation that chose the move, such as `"search"` or `"tuple11"`.
    pub valuation_type: Option<&'a str>,
    /// The engine's heuristic value of the board.
    pub board_eval: Option<i32>,
}

/// The details of a run's steps, in columns.
///
/// Equal details have equal columns. Memory holds 2 bytes per step for valuation types and 8 bytes per step for
/// evaluations, if the run has any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepDetails {
    num_steps: usize,
    /// The names of valuation types, in the order of their first use.
    names: Vec<Box<str>>,
    /// One more than the index in `names` of each step; 0 = none. May end before the last step.
    valuation_types: Vec<u16>,
    /// May end before the last step.
    board_evals: Vec<Option<i32>>,
}

impl StepDetails {
    /// The maximum number of different valuation types in a run.
    pub(crate) const MAX_NAMES: usize = 256;

    /// Adds the details of the next step. Returns `false`, and adds no valuation type, if the run would have more than
    /// 256 of them.
    pub fn push(&mut self, detail: StepDetail<'_>) -> bool {
        let place = self.num_steps;
        self.num_steps += 1;
        if let Some(eval) = detail.board_eval {
            self.board_evals.resize(place, None);
            self.board_evals.push(Some(eval));
        }
        let Some(name) = detail.valuation_type else { return true };
        let index = match self.names.iter().position(|known| **known == *name) {
            Some(index) => index,
            None if self.names.len() == StepDetails::MAX_NAMES => return false,
            None => {
                self.names.push(name.into());
                self.names.len() - 1
            }
        };
        self.valuation_types.resize(place, 0);
        self.valuation_types.push(index as u16 + 1);
        true
    }

    /// Returns the details of a step. All are `None` if the step does not exist.
    #[must_use]
    pub fn get(&self, step: usize) -> StepDetail<'_> {
        let name = self.valuation_types.get(step).and_then(|&index| self.names.get(usize::from(index).checked_sub(1)?));
        StepDetail {
            valuation_type: name.map(|name| &**name),
            board_eval: self.board_evals.get(step).copied().flatten(),
        }
    }

    /// Returns whether no step has details.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.board_evals.is_empty()
    }

    /// Returns whether a step has a valuation type.
    pub(crate) fn has_valuation_types(&self) -> bool {
        !self.names.is_empty()
    }

    /// Returns whether a step has an evaluation.
    pub(crate) fn has_board_evals(&self) -> bool {
        !self.board_evals.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_return_as_they_were_added() {
        let none = StepDetail::default();
        let all = [
            none,
            StepDetail { valuation_type: Some("search"), board_eval: Some(-3) },
            none,
            StepDetail { valuation_type: Some("tuple11"), ..none },
            StepDetail { valuation_type: Some("search"), board_eval: Some(0) },
            none,
        ];
        let mut details = StepDetails::default();
        assert!(all.iter().all(|&detail| details.push(detail)) && !details.is_empty());
        assert!((0..all.len()).all(|step| details.get(step) == all[step]));
        assert_eq!(details.get(all.len()), none);

        let mut empty = StepDetails::default();
        assert!(empty.push(none) && empty.is_empty());
    }

    #[test]
    fn a_run_has_at_most_256_valuation_types() {
        let mut details = StepDetails::default();
        let names: Vec<String> = (0..257).map(|name| name.to_string()).collect();
        let of = |name| StepDetail { valuation_type: Some(name), ..StepDetail::default() };
        assert!(names[..256].iter().all(|name| details.push(of(name))));
        assert!(!details.push(of(&names[256])));
        assert!(details.push(of(&names[3])));
        assert_eq!((details.get(256).valuation_type, details.get(257).valuation_type), (None, Some("3")));
    }
}
