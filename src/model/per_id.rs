//! Numbers by id, found without a search.
//!
//! Fileservers and racks are numbered one after the other from 1, and there are hundreds. A round
//! asks for such numbers some hundred thousand times, and where trees were searched for them, that
//! took most of its time.

use std::collections::BTreeMap;
use std::marker::PhantomData;

/// Ids below this have a place of their own; no fleet has so many, but nothing forbids it.
const DENSE: usize = 1 << 16;

/// One number for each id; those that were never written are the type's zero.
#[derive(Debug, Clone)]
pub struct PerId<K, T> {
    dense: Vec<T>,
    beyond: BTreeMap<i64, T>,
    key: PhantomData<K>,
}

impl<K, T> Default for PerId<K, T> {
    fn default() -> Self {
        Self { dense: Vec::new(), beyond: BTreeMap::new(), key: PhantomData }
    }
}

impl<K: Into<i64>, T: Copy + Default> PerId<K, T> {
    /// The number of an id.
    #[must_use]
    pub fn get(&self, id: K) -> T {
        let id = id.into();
        match place(id) {
            Some(at) => self.dense.get(at).copied().unwrap_or_default(),
            None => self.beyond.get(&id).copied().unwrap_or_default(),
        }
    }

    /// The number of an id, to be written.
    pub fn slot(&mut self, id: K) -> &mut T {
        let id = id.into();
        let Some(at) = place(id) else { return self.beyond.entry(id).or_default() };
        if self.dense.len() <= at {
            self.dense.resize(at + 1, T::default());
        }
        &mut self.dense[at]
    }
}

fn place(id: i64) -> Option<usize> {
    usize::try_from(id).ok().filter(|at| *at < DENSE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::FileserverId;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_id_has_its_own_number_whatever_the_ids(
            written in prop::collection::vec((prop_oneof![-2..400_i64, 65_530..65_540_i64, any::<i64>()], 1..99_i64), 0..40),
        ) {
            let (mut known, mut all) = (BTreeMap::new(), PerId::<FileserverId, i64>::default());
            for (id, number) in &written {
                *known.entry(*id).or_insert(0) += number;
                *all.slot(FileserverId(*id)) += number;
            }
            for id in written.iter().map(|(id, _)| *id).chain(-2..400) {
                prop_assert_eq!(all.get(FileserverId(id)), known.get(&id).copied().unwrap_or(0));
            }
        }
    }
}
