package remoting

import (
	"encoding/json"
	"fmt"
)

// unmarshalLoose reads JSON whose objects may have bare keys, as Java's
// fastjson writes maps with integer keys: {0:"127.0.0.1:10911"}.
func unmarshalLoose(b []byte, into any) error {
	if err := json.Unmarshal(quoteKeys(b), into); err != nil {
		return fmt.Errorf("reading the name server's JSON: %w", err)
	}
	return nil
}

// quoteKeys puts quotes around bare keys. It does not change strings, bare values and text that is not JSON.
func quoteKeys(b []byte) []byte {
	out := make([]byte, 0, len(b)+16)
	keyMayFollow := false
	for i := 0; i < len(b); {
		end := tokenEnd(b, i)
		token := b[i:end]
		bare := keyMayFollow && isBare(token[0]) && colonFollows(b[end:])
		if bare {
			out = append(out, '"')
		}
		out = append(out, token...)
		if bare {
			out = append(out, '"')
		}
		if !isSpace(token[0]) {
			keyMayFollow = token[0] == '{' || token[0] == ','
		}
		i = end
	}
	return out
}

// tokenEnd returns where the token that starts at i ends: a string, a run of
// bare characters, or a single byte.
func tokenEnd(b []byte, i int) int {
	if b[i] == '"' {
		return stringEnd(b, i)
	}
	end := i + 1
	for isBare(b[i]) && end < len(b) && isBare(b[end]) {
		end++
	}
	return end
}

func stringEnd(b []byte, i int) int {
	for j := i + 1; j < len(b); j++ {
		switch b[j] {
		case '\\':
			j++
		case '"':
			return j + 1
		}
	}
	return len(b)
}

func isBare(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_' || c == '.'
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func colonFollows(b []byte) bool {
	for _, c := range b {
		if !isSpace(c) {
			return c == ':'
		}
	}
	return false
}
