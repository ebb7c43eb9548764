# A config of UCI, as `uci export carnet` writes it, becomes one of TOML. `carnet-uci` calls it.
#
#   awk -f uci-to-toml.awk -v networks='wan=eth1 lan=br-lan' KEYS EXPORT
#
# A section's type is the name of a table in docs/config.md with `_` for `.`: `config home_agent_mobile_router` is
# [[home_agent.mobile_router]]. Options are its keys, lists its arrays; what is an inline table there is a prefix here: `auth_spi`.
# KEYS, made of that page by keys.awk, says which keys there are and how TOML writes their values. An interface written as
# `@NETWORK` is the device of that network of OpenWrt's, as `networks` has them. A section that may be there several times is
# left out while its interface has no device, or while no interface of a list has one: an empty list would select every
# interface. Sections of a section that is left out are left out too. Behind each line stands where it came from, for `carnet-uci` to tell whose mistake it is.

BEGIN {
	FS = "\t"
	quote = sprintf("%c", 39)
	count = split(networks, pairs, " ")
	for (i = 1; i <= count; i++) {
		at = index(pairs[i], "=")
		device["@" substr(pairs[i], 1, at - 1)] = substr(pairs[i], at + 1)
	}
}

FNR == 1 { file++ }

# KEYS
file == 1 {
	if ($2 == "") {
		type = $1
		gsub(/\./, "_", type)
		header[type] = $1
		repeated[type] = ($3 == "tables")
	} else {
		type = $1
		gsub(/\./, "_", type)
		kind[type, $2] = $3
		if ($3 == "auth" || $3 == "signal") inline[type, $2] = 1
	}
	next
}

function mistake(where, what) {
	print where ": " what >"/dev/stderr"
	wrong = 1
}

# The words of a line of `uci export`: bare, or in single quotes with '\'' for one.
function words(line, found,   n, at, character, inside, word, any) {
	n = 0; inside = 0; word = ""; any = 0
	for (at = 1; at <= length(line); at++) {
		character = substr(line, at, 1)
		if (character == quote) {
			inside = !inside
			any = 1
		} else if (inside) {
			word = word character
		} else if (character == " " || character == "\t") {
			if (any) { found[++n] = word; word = ""; any = 0 }
		} else {
			if (character == "\\") character = substr(line, ++at, 1)
			word = word character
			any = 1
		}
	}
	if (any) found[++n] = word
	return inside ? -1 : n
}

# EXPORT: first it is read, for a table's values have to stand together.
{
	gsub(/\r$/, "")
	delete word
	n = words($0, word)
	if (n == 0 || word[1] == "package" || substr(word[1], 1, 1) == "#") next
	if (n < 0) { mistake("line " FNR, "a quote is not closed: values are of one line"); next }
	if (word[1] == "config") {
		sections++
		type_of[sections] = word[2]
		number = times[word[2]]++
		name_of[sections] = "carnet." (n > 2 ? word[3] : "@" word[2] "[" number "]")
		if (n > 3) mistake(name_of[sections], "expected a type and a name")
	} else if ((word[1] == "option" || word[1] == "list") && sections) {
		where = name_of[sections] "." word[2]
		if (n != 3) { mistake(where, "expected one value"); next }
		if (word[1] == "option" && (sections, word[2]) in values) { mistake(where, "is there twice"); next }
		if (!((sections, word[2]) in values)) {
			options[sections] = options[sections] (options[sections] == "" ? "" : " ") word[2]
		}
		values[sections, word[2]]++
		value_of[sections, word[2], values[sections, word[2]]] = word[3]
		is_list[sections, word[2]] = (word[1] == "list")
	} else {
		mistake("line " FNR, "expected config, option or list, found " word[1])
	}
}

function string(text) {
	gsub(/\\/, "\\\\", text)
	gsub(/"/, "\\\"", text)
	if (text ~ /[\001-\037\177]/) return ""
	return "\"" text "\""
}

function is_true(text) { return text ~ /^(1|on|true|yes|enabled)$/ }
function is_false(text) { return text ~ /^(0|off|false|no|disabled)$/ }

# One value as TOML writes it, or nothing and a mistake.
function scalar(text, kind, where,   written) {
	if (kind == "boolean") {
		if (is_true(text)) return "true"
		if (is_false(text)) return "false"
		mistake(where, "found '" text "', expected 1 or 0")
		return ""
	}
	if (kind ~ /^integer,/) {
		if (text ~ /^-?(0|[1-9][0-9]*)$/) return text
		mistake(where, "found '" text "', expected a whole number: " kind)
		return ""
	}
	if (kind ~ /^number,/ || kind == "coordinate") {
		if (text ~ /^-?(0|[1-9][0-9]*)(\.[0-9]+)?$/) return text
		mistake(where, "found '" text "', expected a number")
		return ""
	}
	if (kind == "port" && text ~ /^[1-9][0-9]*$/) return text
	written = string(text)
	if (written == "") mistake(where, "a control character")
	return written
}

# The kind of one element of an array, or nothing where it is none.
function element(kind) {
	if (kind == "coordinates") return "coordinate"
	if (kind == "array of ports") return "port"
	if (sub(/^array of integers/, "integer", kind)) return kind
	# Of `lan`, an array of names or tables: UCI writes the tables as sections of their own.
	if (kind ~ /^array of interfaces/) return "interface"
	if (kind ~ /^array of /) return "text"
	return ""
}

# Whether the elements of an array have several words, so that an option is one of them.
function has_words(kind) { return kind ~ /^array of (options|reservations|pairs of prefixes)$/ }

# What an option is in TOML; nothing where there is a mistake, or no device yet (then `waits` says so).
function written(section, option, kind, where,   n, i, one, text, all, parts, many) {
	n = values[section, option]
	one = element(kind)
	# Where one or several are good, a list makes several.
	if (one == "" && is_list[section, option]) {
		if (kind !~ /array/) { mistake(where, "a list, expected an option: " kind); return "" }
		one = "text"
	}
	if (one == "") {
		text = value_of[section, option, 1]
		if ((kind == "interface" || kind == "radio") && substr(text, 1, 1) == "@") {
			if (!(text in device)) { waits = substr(text, 2); return "" }
			text = device[text]
		}
		return scalar(text, kind, where)
	}
	all = ""
	without_device = ""
	for (i = 1; i <= n; i++) {
		text = value_of[section, option, i]
		# An option with several words is a list, as elsewhere in UCI.
		many = is_list[section, option] || has_words(kind) ? 1 : split(text, parts, /[ ,]+/)
		if (is_list[section, option] || has_words(kind)) parts[1] = text
		for (m = 1; m <= many; m++) {
			text = parts[m]
			if (text == "" && many > 1) continue
			if (one == "interface" && substr(text, 1, 1) == "@") {
				if (!(text in device)) {
					note(where, "the network " substr(text, 2) " has no device yet: left out")
					without_device = substr(text, 2)
					continue
				}
				text = device[text]
			}
			text = scalar(text, one, where)
			if (text == "") return ""
			all = all (all == "" ? "" : ", ") text
		}
	}
	if (all == "" && without_device != "") { waits = without_device; return "" }
	return "[" all "]"
}

# `list auth_former 'SPI FILE'`: keys that are accepted beside the one of `auth`, as an array of tables.
function former(section, option, where,   n, i, parts, all) {
	all = ""
	n = values[section, option]
	for (i = 1; i <= n; i++) {
		if (split(value_of[section, option, i], parts, / +/) != 2 || parts[1] !~ /^[1-9][0-9]*$/) {
			mistake(where, "expected an SPI and a file with its key, such as " quote "300 /etc/carnet/old.key" quote)
			return ""
		}
		all = all (all == "" ? "" : ", ") "{ spi = " parts[1] ", key_file = " string(parts[2]) " }"
	}
	return "[" all "]"
}

function note(where, what) { print where ": " what >"/dev/stderr" }

# Whether the section is one of [[mobile_node.uplink]] and the like, whose keys are those of a mobile router's.
function keys_of(type) {
	return type ~ /^mobile_node_/ ? "mobile_router_" substr(type, 13) : type
}

# The section before this one that TOML takes a repeated table for a part of: of `mobile_router_lan_allow` it is
# `mobile_router_lan`. Nothing where the type is a part of no repeated table.
function part_of(type,   outer) {
	outer = type
	while (sub(/_[^_]*$/, "", outer)) if (repeated[keys_of(outer)]) return outer
	return ""
}

function one_section(s,   type, own, list, n, i, option, where, text, lines, body, base, rest, below, outer) {
	type = type_of[s]
	own = keys_of(type)
	if (!(own in header) || own == "auth" || own == "signal") {
		mistake(name_of[s], "there is no section of the type " type "; docs/config.md has the tables")
		return
	}
	if (!repeated[own] && seen[type]++) mistake(name_of[s], "a second section of the type " type)
	# TOML knows a key once: as an array of names, or as tables.
	if (type == "mobile_router" && values[s, "lan"] && times["mobile_router_lan"]) {
		mistake(name_of[s] ".lan", "a list beside sections mobile_router_lan: expected every interface as such a section")
	}
	# Until its end shows that it is written.
	left_out[type] = 1
	outer = part_of(type)
	if (outer != "" && left_out[outer]) {
		note(name_of[s], "the section " outer " before it is left out, and so is this one")
		return
	}
	body = ""
	n = split(options[s], list, " ")
	for (i = 1; i <= n; i++) {
		option = list[i]
		where = name_of[s] "." option
		if (option == "disabled" || (option == "enabled" && type == "station")) {
			text = scalar(value_of[s, option, 1], "boolean", where)
			if (option == "disabled" && text == "true") return
			continue
		}
		waits = ""
		base = option
		sub(/_.*/, "", base)
		rest = substr(option, length(base) + 2)
		if ((own, option) in kind && kind[own, option] ~ /^(tables?|array of tables)$/) {
			mistake(where, "expected sections " own "_" option " in its place")
		} else if ((own, option) in kind && !((own, option) in inline && value_of[s, option, 1] != "none")) {
			text = written(s, option, kind[own, option], where)
			if (text != "") body = body option " = " text "  # " where "\n"
		} else if (rest != "" && (own, base) in inline && (base, rest) in kind) {
			text = (base == "auth" && rest == "former") ? former(s, option, where) : written(s, option, kind[base, rest], where)
			# The rest of an inline table is behind the first of it: dotted keys are the same to TOML.
			if (text != "") body = body base "." rest " = " text "  # " where "\n"
		} else {
			mistake(where, "there is no such option; docs/config.md has the keys of " header[own])
		}
		if (waits != "") {
			if (kind[own, option] !~ /^array/) note(where, "the network " waits " has no device yet: left out")
			if (repeated[own]) return
		}
	}
	left_out[type] = 0
	below = header[own]
	if (type != own) sub(/^mobile_router/, "mobile_node", below)
	printf "\n%s  # %s\n%s", repeated[own] ? "[[" below "]]" : "[" below "]", name_of[s], body
}

END {
	print "# Made of /etc/config/carnet at each start and reload: change that."
	for (s = 1; s <= sections; s++) one_section(s)
	exit wrong
}
