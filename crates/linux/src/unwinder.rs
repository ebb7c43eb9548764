//! What unwinds a stack, for programs that abort on a panic: nothing.
//!
//! Rust's own library can print a backtrace, and for that has an unwinder and a reader of debug information linked into every
//! program, 0.2 MB of this one. A release build has neither tables to unwind by (`discard-unwind-tables.ld`) nor symbols to
//! print. So it gets these functions in the place of the unwinder's: by the first a stack has no frames, and
//! the compiler, which sees that nobody is ever called with one, leaves out all that would have been done with them. The others nobody
//! calls: they have to be there as that library names them.

use std::ffi::{c_int, c_void};

/// `_URC_END_OF_STACK`
const END_OF_STACK: c_int = 5;

// SAFETY of the names, here and below: they are those of the unwinder, and do what may be asked of one, or end the program.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Backtrace(_frame: *const c_void, _data: *mut c_void) -> c_int {
    END_OF_STACK
}

macro_rules! never_called {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($(_: $argument),*) -> $result {
                std::process::abort()
            }
        )*
    };
}

never_called! {
    _Unwind_FindEnclosingFunction(*mut c_void) -> *mut c_void;
    _Unwind_GetCFA(*mut c_void) -> usize;
    _Unwind_GetDataRelBase(*mut c_void) -> usize;
    _Unwind_GetIP(*mut c_void) -> usize;
    _Unwind_GetIPInfo(*mut c_void, *mut c_int) -> usize;
    _Unwind_GetLanguageSpecificData(*mut c_void) -> *mut c_void;
    _Unwind_GetRegionStart(*mut c_void) -> usize;
    _Unwind_GetTextRelBase(*mut c_void) -> usize;
    _Unwind_Resume(*mut c_void) -> !;
    _Unwind_SetGR(*mut c_void, c_int, usize) -> ();
    _Unwind_SetIP(*mut c_void, usize) -> ();
}
