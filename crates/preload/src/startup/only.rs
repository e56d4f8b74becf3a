//! Which programs are served: `LATCHWORK_ONLY` and `LATCHWORK_NOT`, lists of patterns for the names of executables.
//!
//! A program passes its environment on to all programs that it starts. These two variables choose among them by name: for
//! example, of `make -j8` with its shells and compilers only the linker.

use crate::state::executed;
use latchwork_check::matches;

/// Whether this process is served. `only` and `not` are the values of the two variables.
pub(super) fn chosen(only: Option<&[u8]>, not: Option<&[u8]>) -> bool {
    if only.is_none() && not.is_none() {
        return true;
    }
    let name = executed::name();
    let among = |list: &[u8]| list.split(|byte| *byte == b',').any(|pattern| matches(pattern, name));
    only.is_none_or(among) && !not.is_some_and(among)
}
