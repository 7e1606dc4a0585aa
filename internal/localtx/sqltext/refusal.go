package sqltext

import "slices"

const (
	ownsTransaction = " is not allowed: the service begins and ends the transaction"
	leavesBehind    = " is not allowed: it would stay behind in the connection, which others use next"
	needsClient     = " is not allowed: there is no client to send or take the rows"
	runsOutside     = " is not allowed: PostgreSQL takes it outside of transactions only"
)

// refused names the statements that are never part of a local transaction, by their first word.
var refused = map[string]string{
	"BEGIN": ownsTransaction, "COMMIT": ownsTransaction, "END": ownsTransaction, "ROLLBACK": ownsTransaction,
	"ABORT": ownsTransaction, "SAVEPOINT": ownsTransaction, "RELEASE": ownsTransaction,
	"LISTEN": leavesBehind, "UNLISTEN": leavesBehind, "RESET": leavesBehind, "DISCARD": leavesBehind,
	"DEALLOCATE": leavesBehind, "LOAD": leavesBehind,
}

// refusal says why a statement is refused, and returns "" for one that is allowed. lead is its first word; words are
// those outside of parentheses.
func refusal(lead string, words []string) string {
	if why, ok := refused[lead]; ok {
		return lead + why
	}
	if lead != "" {
		if what := outside(words); what != "" {
			return what + runsOutside
		}
	}
	switch lead {
	case "START":
		return "START TRANSACTION" + ownsTransaction
	case "PREPARE":
		if second(words) == "TRANSACTION" {
			return "PREPARE TRANSACTION" + ownsTransaction
		}
		return "PREPARE" + leavesBehind
	case "SET":
		return refusedSet(words)
	case "COPY":
		for _, stream := range []string{"STDIN", "STDOUT"} {
			if slices.Contains(words, stream) {
				return "COPY with " + stream + needsClient
			}
		}
	}
	return ""
}

// refusedSet allows settings that end with the transaction: SET CONSTRAINTS, and SET LOCAL of a setting.
func refusedSet(words []string) string {
	scope := second(words)
	if scope == "LOCAL" {
		scope = second(words[1:])
		if scope != "TRANSACTION" && scope != "SESSION" {
			return ""
		}
	}
	switch scope {
	case "CONSTRAINTS":
		return ""
	case "TRANSACTION":
		return "SET TRANSACTION" + ownsTransaction
	case "SESSION":
		return "SET SESSION" + leavesBehind
	default:
		return "SET without LOCAL" + leavesBehind
	}
}

func second(words []string) string {
	if len(words) < 2 {
		return ""
	}
	return words[1]
}
