//! Texts of errors of the BPF library.

/// Formats an error and all its causes as one line of text.
pub(super) fn format_error_with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    text
}
