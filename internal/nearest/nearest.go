// Package nearest finds the name that a misspelt one probably means.
package nearest

// Name returns the candidate that needs the fewest letters added, left out, replaced or exchanged to become the name; nothing
// when more than a third of the name would change. Of several, the first is taken.
func Name(name string, candidates []string) (string, bool) {
	best, least := "", max(1, len(name)/3)+1
	for _, c := range candidates {
		if d := distance([]rune(name), []rune(c)); d < least {
			best, least = c, d
		}
	}
	return best, best != ""
}

// distance is Levenshtein's, where two neighbours that changed places are one change.
func distance(a, b []rune) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range b {
		rows[0][j+1] = j + 1
	}
	for i := range a {
		for j := range b {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			d := min(rows[i][j]+change, rows[i][j+1]+1, rows[i+1][j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, rows[i-1][j-1]+1)
			}
			rows[i+1][j+1] = d
		}
	}
	return rows[len(a)][len(b)]
}
