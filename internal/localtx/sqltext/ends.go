package sqltext

// EndsTransaction says whether the text has a statement that ends the transaction in which it is executed: COMMIT, ROLLBACK
// without a savepoint, PREPARE TRANSACTION, and their other names. Text that it cannot read is left to PostgreSQL.
func EndsTransaction(sql string) bool {
	tokens, err := tokensOf(sql)
	if err != nil {
		return false
	}
	if len(tokens) > 0 && upper(sql, tokens[0]) == "CREATE" { // a function's body may have semicolons, and END
		return false
	}
	begins := true
	for i, t := range tokens {
		if begins && ends(sql, tokens[i:]) {
			return true
		}
		begins = t.kind == semicolon
	}
	return false
}

func ends(sql string, tokens []token) bool {
	word := func(i int) string {
		if i >= len(tokens) {
			return ""
		}
		return upper(sql, tokens[i])
	}
	switch word(0) {
	case "COMMIT", "END", "ABORT":
		return true
	case "ROLLBACK":
		next := 1
		if word(1) == "WORK" || word(1) == "TRANSACTION" {
			next = 2
		}
		return word(next) != "TO"
	case "PREPARE":
		return word(1) == "TRANSACTION"
	default:
		return false
	}
}
