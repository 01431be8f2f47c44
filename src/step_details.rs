//! Details of steps that only the Macroxue engine records.

/// Details of one step. `None` = not recorded, or not different from the usual value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepDetail<'a> {
    /// The kind of evaluation that chose the move, such as `"search"` or `"tuple11"`.
    pub valuation_type: Option<&'a str>,
    /// The engine's heuristic value of the board.
    pub board_eval: Option<i32>,
    /// The seed of the step, if it differs from the low 32 bits of the run's seed.
    pub seed: Option<u32>,
    /// The largest exponent as the engine recorded it, if it differs from the largest exponent of the board.
    pub max_rank: Option<u8>,
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
    /// The steps with a seed, in ascending order.
    seeds: Vec<(u32, u32)>,
    /// The steps with a rank, in ascending order.
    max_ranks: Vec<(u32, u8)>,
    /// The padding of the rows that the steps came from; empty if all of it is 0.
    padding: Vec<u8>,
}

impl StepDetails {
    /// The maximum number of different valuation types in a run.
    pub(crate) const MAX_NAMES: usize = 256;

    /// Adds the details of the next step. Returns `false`, and adds no valuation type, if the run would have more than
    /// 256 of them.
    pub fn push(&mut self, detail: StepDetail<'_>) -> bool {
        let (place, at) = (self.num_steps, self.num_steps as u32);
        self.num_steps += 1;
        if let Some(eval) = detail.board_eval {
            self.board_evals.resize(place, None);
            self.board_evals.push(Some(eval));
        }
        self.seeds.extend(detail.seed.map(|seed| (at, seed)));
        self.max_ranks.extend(detail.max_rank.map(|rank| (at, rank)));
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
        fn of<T: Copy>(values: &[(u32, T)], step: usize) -> Option<T> {
            let at = values.binary_search_by_key(&(step as u64), |&(at, _)| u64::from(at)).ok()?;
            values.get(at).map(|&(_, value)| value)
        }
        let name = self.valuation_types.get(step).and_then(|&index| self.names.get(usize::from(index).checked_sub(1)?));
        StepDetail {
            valuation_type: name.map(|name| &**name),
            board_eval: self.board_evals.get(step).copied().flatten(),
            seed: of(&self.seeds, step),
            max_rank: of(&self.max_ranks, step),
        }
    }

    /// Returns whether no step has details.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.has_numbers() && self.padding.is_empty()
    }

    /// Returns the bytes between the fields of the rows that the steps came from; empty if all of them are 0.
    pub(crate) fn padding(&self) -> &[u8] {
        &self.padding
    }

    pub(crate) fn with_padding(self, padding: Vec<u8>) -> StepDetails {
        let padding = if padding.iter().all(|&byte| byte == 0) { Vec::new() } else { padding };
        StepDetails { padding, ..self }
    }

    /// Returns whether a step has a valuation type.
    pub(crate) fn has_valuation_types(&self) -> bool {
        !self.names.is_empty()
    }

    /// Returns whether a step has an evaluation, a seed or a rank.
    pub(crate) fn has_numbers(&self) -> bool {
        !(self.board_evals.is_empty() && self.seeds.is_empty() && self.max_ranks.is_empty())
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
            StepDetail { valuation_type: Some("search"), board_eval: Some(-3), ..none },
            StepDetail { seed: Some(7), ..none },
            StepDetail { valuation_type: Some("tuple11"), max_rank: Some(4), ..none },
            StepDetail { valuation_type: Some("search"), board_eval: Some(0), ..none },
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
