//! Parts of the program that a Cargo feature adds.

/// A part of the program that a station may have. `BUILT` says whether the feature of the part is on, as in
/// `OptionalPart<Geonet, { cfg!(feature = "geonet") }>`.
///
/// With `BUILT` false no station has the part. [`Self::get`] then returns a constant `None`. So the compiler
/// leaves out all code that works on the part. It still checks this code.
#[derive(Debug)]
pub struct OptionalPart<T, const BUILT: bool>(Option<T>);

impl<T, const BUILT: bool> OptionalPart<T, BUILT> {
    /// Creates the part of a station; `None` if the station does not have it.
    pub fn new(part: Option<T>) -> Self {
        OptionalPart(part.filter(|_| BUILT))
    }

    /// Returns the part, if the station has it.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if BUILT { self.0.as_ref() } else { None }
    }

    /// Returns the part for changes, if the station has it.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        if BUILT { self.0.as_mut() } else { None }
    }

    /// Removes the part from the station, and returns it if the station had it.
    pub fn take(&mut self) -> Option<T> {
        if BUILT { self.0.take() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_without_its_cargo_feature_is_absent() {
        let mut on = OptionalPart::<u8, true>::new(Some(1));
        assert_eq!(
            (on.get().copied(), on.get_mut().copied(), on.take(), on.take()),
            (Some(1), Some(1), Some(1), None)
        );
        let mut off = OptionalPart::<u8, false>::new(Some(1));
        assert_eq!((off.get().copied(), off.get_mut().copied(), off.take()), (None, None, None));
    }
}
