package pgurl_test

import (
	"strings"
	"testing"

	"github.com/txsvc/txsvc/internal/pgurl"
)

func TestParse(t *testing.T) {
	config, err := pgurl.Parse("postgres://u:pw@h:5433/x?pool_max_conns=7")
	if err != nil || config.MaxConns != 7 || config.ConnConfig.Password != "pw" {
		t.Errorf("got %+v (%v)", config, err)
	}
}

// The password is hunter2 throughout; of a number, the digits 987654 are it.
func TestParseSaysWhy(t *testing.T) {
	for url, want := range map[string]string{
		"mysql://u:hunter2@h/x":                                       "it does not begin with postgres:// or postgresql://",
		"POSTGRES://u:hunter2@h/x":                                    "it does not begin with postgres:// or postgresql://",
		"u:hunter2@h/x":                                               "it does not begin with postgres:// or postgresql://",
		"postgres//u:hunter2@h/x":                                     "it does not begin with postgres:// or postgresql://",
		"postgres://u:hunter2@h:notaport/x":                           "invalid port",
		"postgres://u:987654@h:99999/x":                               "invalid port",
		"postgres://u:hunter2/@h:5432/x":                              "invalid port; a / in the user's name or password is written %2F",
		"postgres://u:hunter2%@h/x":                                   "failed to parse as URL (invalid percent-encoded token in password)",
		"postgres://u:hunter2 hunter2@h/x":                            "failed to parse as URL (unexpected spaces found in password, use percent-encoded spaces (%20) instead)",
		"postgres://u:p@hunter2 @h/x":                                 "failed to parse as URL (unexpected spaces found in, use percent-encoded spaces (%20) instead)",
		"postgres://u:hunter2@[::1/x":                                 `failed to parse as URL (end of string reached when looking for matching "]" in IPv6 host address in URI)`,
		"postgres://u:hunter2@h/x?sslmode=maybe":                      "failed to configure TLS (sslmode is invalid)",
		"postgres://u:hunter2@h/x?sslmode=verify-ca&sslrootcert=/no/": "failed to configure TLS (unable to read CA file: open /no/: no such file or directory)",
		"postgres://u:hunter2@h/x?pool_max_conns=hunter2":             "cannot parse pool_max_conns (invalid syntax)",
		"postgres://u:hunter2@h/x?connect_timeout=x":                  "invalid connect_timeout (invalid syntax)",
		"host=h password=hunter2 port=x":                              "invalid port",
		"host=h password='hunter2":                                    "failed to parse as keyword/value (unterminated quoted string in connection info string)",
	} {
		_, err := pgurl.Parse(url)
		if err == nil || err.Error() != "the database URL is not valid: "+want {
			t.Errorf("%s: got %v, want %s", url, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "987654")) {
			t.Errorf("%s: the error tells the password: %v", url, err)
		}
	}
}
