# Reads the output of all test runners, and says what failed, each with the first lines of its reason: what a reader of
# a long log wants to know first; and what held only when it was tried again. Prints nothing when there is nothing.
#
# Of libtest (`--nocapture`): the names under "failures:", each with what its thread said when it panicked. Of cargo:
# its errors, a test that ended by a signal is among them. Of the conformance suites: rows marked FAIL, and faults. Of
# unittest: headings FAIL and ERROR.

function tell(text) {
  if (!told++) print "\nFailed:"
  print "  " text
}
function reason(text) { if (text != "") print "      " substr(text, 1, 300) }

# Which runner it is.
/^ +Running / || /^ +Doc-tests / { target = $0; sub(/^ +(Running )?/, "", target); sub(/ \(.*/, "", target); delete said }
/^The program over the data path / { path = ", data path " $NF; sub(/:$/, "", path) }
/^ +Running .*carnet_lab-/ { path = "" }

# What a thread said at its end, until the backtrace or the next test.
/^(test .* \.\.\. )?thread '.*' (\([0-9]+\) )?panicked at / {
  thread = $0; sub(/^[^']*'/, "", thread); sub(/' (\([0-9]+\) )?panicked at .*/, "", thread)
  place = $0; sub(/.* panicked at /, "", place)
  if (!(thread in said)) { said[thread] = place; lines[thread] = 0 } else thread = ""
  next
}
/^stack backtrace:/ || /^note: / || /^test / || /^$/ || /^failures:/ { thread = "" }
thread != "" && lines[thread]++ < 5 { said[thread] = said[thread] "\n      " substr($0, 1, 300) }

/^failures:$/ { listing = 1; next }
/^test result:/ { listing = 0 }
listing && /^    [^ ]/ {
  name = substr($0, 5)
  tell(name " (" target path ")")
  reason(name in said ? said[name] : "its own thread did not panic: look for the name above")
}

/^error(\[|:)/ { tell($0); more = 4; next }
more-- > 0 && /^ +(-->|`-p|process didn)/ { sub(/^ +/, ""); reason($0) }

# What needed more than one attempt is worth a look, too: it says which expectation did not hold at first.
/, attempt [0-9]+:$/ { attempt = $0; sub(/:$/, "", attempt); sub(/^test .* \.\.\. /, "", attempt) }
/^test / || /^The / { if (!/, attempt [0-9]+:$/) attempt = "" }
/^The conformance suite / { suite = $4; sub(/:$/, "", suite) }
/^ +FAIL  / && suite == "" && attempt != "" {
  row = $0; sub(/^ +FAIL +/, "", row); gsub(/  +/, "  ", row)
  again[++agains] = attempt ": " row
}
suite != "" && / \([0-9]+ attempts\)$/ { row = $0; gsub(/  +/, "  ", row); again[++agains] = suite ":" row }

/^ +FAIL  / && suite != "" {
  row = $0; sub(/^ +FAIL +/, "", row); gsub(/  +/, "  ", row)
  tell("conformance " suite ": " row); explains = 1; next
}
/^FAULT: / { tell("conformance " suite ": " $0) }
/ passes now: take it out of known-misses/ { tell("conformance " suite ": " $0) }
explains { explains = 0; if (/^            /) { sub(/^ +/, ""); reason($0) } }

/^(FAIL|ERROR): [a-z_]+ / { tell("simulator: " $0) }

END {
  if (agains) print "\nHeld only at a further attempt:"
  for (n = 1; n <= agains; n++) print "  " again[n]
}
