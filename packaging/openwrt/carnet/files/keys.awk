# The keys of the config with their types, of docs/config.md: lines of TABLE, KEY and TYPE, separated by tabs. What UCI has to
# know is thus what the page says, which is held to the program.
/^## / {
	table = ""
	if (match($0, /^## \[+[a-z0-9_.]+\]+$/)) {
		table = $2
		repeated = (table ~ /^\[\[/)
		gsub(/[][]/, "", table)
	} else if ($0 == "## auth" || $0 == "## signal") {
		table = $2
		repeated = 0
	}
	if (table != "") print table "\t\t" (repeated ? "tables" : "table")
}
table != "" && /^\| `[a-z0-9_]+` \| / {
	split($0, cell, / \| /)
	key = cell[1]
	gsub(/[|` ]/, "", key)
	print table "\t" key "\t" cell[2]
}
