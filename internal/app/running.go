package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/txsvc/txsvc/internal/config"
)

// A running txsvc dev leaves in its directory how to reach what runs, and which kinds it serves: for other commands, and for
// shells (`. .txsvc/env`). The database's password is in it.

const (
	devFile   = "env"
	devConfig = "shipped" // the directory of the shipped kinds, where those are served
	devDigest = "TXSVC_DEV_CONFIG_SHA256"
)

// tellOthers writes the file from which other commands learn of this txsvc dev.
func (c *devCommand) tellOthers(s settings, addr net.Addr) error {
	path := c.Config
	if path == "" {
		var err error
		if path, err = config.WriteDev(filepath.Join(c.Dir, devConfig)); err != nil {
			return err
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	digest, err := digestOf(path)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, v := range [][2]string{
		{"export TXSVC_URL", baseURL(addr.String())}, {"export TXSVC_CONFIG", path}, {devDigest, digest},
		{"export TXSVC_DATABASE_URL", s.DatabaseURL}, {"export TXSVC_NAMESERVERS", strings.Join(s.Nameservers, ",")},
	} {
		fmt.Fprintf(&text, "%s='%s'\n", v[0], strings.ReplaceAll(v[1], `'`, `'\''`))
	}
	return os.WriteFile(filepath.Join(c.Dir, devFile), []byte(text.String()), 0o600)
}

// forget removes the file.
func (c *devCommand) forget() error {
	err := os.Remove(filepath.Join(c.Dir, devFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func digestOf(path string) (string, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the operator names it
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// ofDev are the settings that a command takes from a running txsvc dev; those that it does not need are nil.
type ofDev struct {
	cluster             *cluster
	databaseURL, config *string
	urls                *[]string
}

// complete fills in the missing settings when a txsvc dev runs in the directory, and says so. It does nothing when name servers are
// given, or a database to a command without name servers, because another stack is meant then.
func (o ofDev) complete(ctx context.Context, out output, dir string) error {
	if o.cluster != nil && len(o.cluster.Nameservers) > 0 || o.cluster == nil && *o.databaseURL != "" {
		return nil
	}
	env := readDevEnv(dir)
	if env["TXSVC_NAMESERVERS"] == "" {
		return nil
	}
	if !alive(ctx, env["TXSVC_URL"]) {
		out.tell(fmt.Sprintf("%s is of a txsvc dev that does not answer any more, and is not used", filepath.Join(dir, devFile)))
		return nil
	}
	if o.cluster != nil {
		o.cluster.Nameservers = strings.Split(env["TXSVC_NAMESERVERS"], ",")
	}
	if o.databaseURL != nil && *o.databaseURL == "" {
		*o.databaseURL = env["TXSVC_DATABASE_URL"]
	}
	if o.urls != nil && len(*o.urls) == 0 {
		*o.urls = []string{env["TXSVC_URL"]}
	}
	used := "using the txsvc dev that runs in " + dir
	if o.config != nil {
		serves := env["TXSVC_CONFIG"]
		switch digest, err := digestOf(serves); {
		case *o.config != "":
			used += fmt.Sprintf(", and the kinds of %s, where it serves those of %s", *o.config, serves)
		case err != nil:
			return fmt.Errorf("the kinds that txsvc dev serves: %w", err)
		case digest != env[devDigest]:
			return fmt.Errorf("%s has changed since txsvc dev read it: start that anew, or name the file with --config to have answers from it as it is now", serves)
		default:
			*o.config = serves
			used += ", and its kinds, of " + serves
		}
	}
	out.tell(used)
	return nil
}

// readDevEnv returns the settings in the file of a txsvc dev; none when there is no such file.
func readDevEnv(dir string) map[string]string {
	text, err := os.ReadFile(filepath.Join(dir, devFile)) //nolint:gosec // the directory is the user's own choice
	if err != nil {
		return nil
	}
	env := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "export "), "=")
		value = strings.TrimSuffix(strings.TrimPrefix(value, "'"), "'")
		env[name] = strings.ReplaceAll(value, `'\''`, `'`)
	}
	return env
}

// alive reports whether a service answers at the URL.
func alive(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", http.NoBody)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// baseURL returns the URL at which this machine reaches a service that listens on the address; empty when it is not known.
func baseURL(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "0" {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
