// Package pgurl reads PostgreSQL URLs for everything that connects.
package pgurl

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Parse reads a URL with the pool's parameters (pool_max_conns and the like), or libpq's key=value pairs. The error says
// what is wrong, and repeats no part of the URL, because a mistake can put the password, or a part of it, in any place.
func Parse(url string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("the database URL is not valid: %s", reason(url, err))
	}
	return config, nil
}

// quoted matches the parts of the URL that pgx repeats.
var quoted = regexp.MustCompile(`strconv\.\w+: parsing "[^"]*": | *"[^"]{2,}"`)

func reason(url string, err error) string {
	_, rest, isURL := strings.Cut(url, "://")
	postgres := strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
	if !postgres && (isURL || !strings.Contains(url, "=")) {
		return "it does not begin with postgres:// or postgresql://"
	}
	// pgx repeats the URL first, in backquotes.
	text := err.Error()
	text = quoted.ReplaceAllString(text[strings.LastIndex(text, "`: ")+len("`: "):], "")
	host, path, _ := strings.Cut(rest, "/")
	if postgres && !strings.Contains(host, "@") && strings.Contains(path, "@") {
		text += "; a / in the user's name or password is written %2F"
	}
	return text
}
