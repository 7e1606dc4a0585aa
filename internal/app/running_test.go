package app

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The address of verify comes from what was said most expressly.
func TestVerifyFindsTheService(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(service.Close)
	running, stale := t.TempDir(), t.TempDir()
	for dir, url := range map[string]string{running: service.URL, stale: "http://127.0.0.1:1"} {
		text := "export TXSVC_URL='" + url + "'\nexport TXSVC_DATABASE_URL='postgres://it'\\''s'\nexport TXSVC_NAMESERVERS='h:1,h:2'\n"
		if err := os.WriteFile(filepath.Join(dir, "env"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		dir, listen string
		urls        []string
		nameservers []string
		want        []string // URLs, and the database's
		says        string
	}{
		"dev":             {running, "", nil, nil, []string{service.URL, "postgres://it's"}, "using the txsvc dev that runs in " + running},
		"listen":          {running, "0.0.0.0:9000", nil, nil, []string{"http://127.0.0.1:9000", "postgres://it's"}, "using the txsvc dev"},
		"port to be free": {running, "127.0.0.1:0", nil, nil, []string{service.URL, "postgres://it's"}, "using the txsvc dev"},
		"URLs":            {running, ":9000", []string{"http://a", "http://b"}, nil, []string{"http://a", "http://b", "postgres://it's"}, "using the txsvc dev"},
		"other stack":     {running, "[::1]:9000", nil, []string{"mq:9876"}, []string{"http://[::1]:9000", ""}, ""},
		"dev was killed":  {stale, "", nil, nil, []string{""}, "does not answer any more"},
		"no dev":          {t.TempDir(), "", nil, nil, []string{""}, ""},
	} {
		c := verifyCommand{Dir: tt.dir, Listen: tt.listen, URL: tt.urls, cluster: cluster{Nameservers: tt.nameservers}}
		var said bytes.Buffer
		if err := c.complete(t.Context(), output{&said, &said}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := append(slices.Clone(c.URL), c.DatabaseURL); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		if !strings.Contains(said.String(), tt.says) || tt.says == "" && said.Len() > 0 {
			t.Errorf("%s: it said %q, want %q", name, said.String(), tt.says)
		}
	}
}
