//! Replaces the unwinder in a program that aborts on a panic and lacks the feature `backtrace`, as for
//! OpenWrt.
//!
//! Rust's library can print a backtrace. For that, it links an unwinder and a reader of debug information
//! into every program, 0.2 MB of carnet. A program for OpenWrt has neither unwind tables
//! (`discard-unwind-tables.ld`) nor symbols. The functions of this module replace the unwinder's.
//! `_Unwind_Backtrace` reports an empty stack, so the compiler removes the code that would print its frames.
//! The library refers to the other functions but never calls them here.

use std::ffi::{c_int, c_void};

/// Result `_URC_END_OF_STACK` of an unwinder: the stack has ended.
const END_OF_STACK: c_int = 5;

// SAFETY of the exported names, here and below: no other unwinder is linked, so no other function has these
// names. Each function does what callers may expect from an unwinder, or ends the program.
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
