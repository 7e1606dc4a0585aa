package sqltext

import (
	"slices"

	"github.com/txsvc/txsvc/internal/nearest"
)

// commands are the first words of PostgreSQL's statements (version 18).
var commands = []string{
	"ABORT", "ALTER", "ANALYSE", "ANALYZE", "BEGIN", "CALL", "CHECKPOINT", "CLOSE", "CLUSTER", "COMMENT", "COMMIT", "COPY", "CREATE",
	"DEALLOCATE", "DECLARE", "DELETE", "DISCARD", "DO", "DROP", "END", "EXECUTE", "EXPLAIN", "FETCH", "GRANT", "IMPORT", "INSERT", "LISTEN",
	"LOAD", "LOCK", "MERGE", "MOVE", "NOTIFY", "PREPARE", "REASSIGN", "REFRESH", "REINDEX", "RELEASE", "RESET", "REVOKE", "ROLLBACK",
	"SAVEPOINT", "SECURITY", "SELECT", "SET", "SHOW", "START", "TABLE", "TRUNCATE", "UNLISTEN", "UPDATE", "VACUUM", "VALUES", "WITH",
}

// unknown returns a message when no statement begins with the word, and "" otherwise. An empty lead means that the
// statement begins with no word; then only an opening parenthesis is allowed.
func unknown(lead string, parenthesis bool) string {
	switch {
	case lead == "" && parenthesis, slices.Contains(commands, lead):
		return ""
	case lead == "":
		return "no statement of PostgreSQL begins like this"
	}
	if meant, ok := nearest.Name(lead, commands); ok {
		return "no statement of PostgreSQL begins with " + lead + "; is " + meant + " meant?"
	}
	return "no statement of PostgreSQL begins with " + lead
}

// outside returns a message for statements that PostgreSQL refuses in a transaction. It looks at the words outside of
// parentheses.
func outside(words []string) string {
	object := second(words)
	concurrently := slices.Contains(words, "CONCURRENTLY")
	switch words[0] {
	case "VACUUM":
		return "VACUUM"
	case "CREATE", "DROP":
		if slices.Contains([]string{"DATABASE", "TABLESPACE", "SUBSCRIPTION"}, object) {
			return words[0] + " " + object
		}
	case "ALTER":
		if object == "SYSTEM" {
			return "ALTER SYSTEM"
		}
	case "REINDEX":
		if slices.Contains([]string{"DATABASE", "SYSTEM", "SCHEMA"}, object) {
			return "REINDEX " + object
		}
	case "CLUSTER":
		if len(words) == 1 {
			return "CLUSTER without a table"
		}
		return ""
	default: // REFRESH MATERIALIZED VIEW CONCURRENTLY is allowed
		return ""
	}
	if concurrently {
		return words[0] + " with CONCURRENTLY"
	}
	return ""
}
