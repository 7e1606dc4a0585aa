package app

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/txsvc/txsvc/internal/http"
	"github.com/txsvc/txsvc/internal/rocketmq"
	"github.com/txsvc/txsvc/internal/txn"
)

// database is the setting that more than one command needs.
type database struct {
	DatabaseURL string `env:"TXSVC_DATABASE_URL" placeholder:"URL" help:"PostgreSQL URL."`
}

func (d database) validate() error {
	if d.DatabaseURL == "" {
		return errors.New("TXSVC_DATABASE_URL is not set: it names the PostgreSQL database, e.g. postgres://user@host/db")
	}
	return nil
}

// cluster is how RocketMQ is reached.
type cluster struct {
	Nameservers []string `env:"TXSVC_NAMESERVERS" placeholder:"HOST:PORT" help:"RocketMQ name servers, comma-separated."`
	AccessKey   string   `env:"TXSVC_ROCKETMQ_ACCESS_KEY" placeholder:"KEY" help:"Access key of the broker's access control."`
	SecretKey   secret   `env:"TXSVC_ROCKETMQ_SECRET_KEY" placeholder:"KEY" help:"Secret key of the broker's access control."`
}

// producer is how half messages are sent.
type producer struct {
	Group     string `env:"TXSVC_ROCKETMQ_GROUP" default:"txsvc" help:"Producer group, of this service alone."`
	Transport string `env:"TXSVC_ROCKETMQ_TRANSPORT" default:"native" enum:"native,library" help:"How half messages are sent: native or library."`
}

// broker is all that the service needs to know of RocketMQ.
type broker struct {
	cluster
	producer
}

func (c cluster) validate() error {
	if len(c.Nameservers) == 0 {
		return errors.New("TXSVC_NAMESERVERS is not set: it names RocketMQ's name servers, e.g. 127.0.0.1:9876")
	}
	for _, ns := range c.Nameservers {
		if _, _, err := net.SplitHostPort(ns); err != nil {
			return fmt.Errorf("TXSVC_NAMESERVERS: %q is not host:port", ns)
		}
	}
	if (c.AccessKey == "") != (c.SecretKey == "") {
		return errors.New("TXSVC_ROCKETMQ_ACCESS_KEY and TXSVC_ROCKETMQ_SECRET_KEY come together")
	}
	return nil
}

func (b broker) config(log *slog.Logger) rocketmq.Config {
	return rocketmq.Config{
		Nameservers: b.Nameservers, Group: b.Group, Transport: rocketmq.Transport(b.Transport),
		AccessKey: b.AccessKey, SecretKey: string(b.SecretKey), Timing: txn.DefaultTiming(), Logger: log,
	}
}

// secret does not print itself.
type secret string

// String hides the value.
func (secret) String() string { return "(secret)" }

// LogValue hides the value.
func (secret) LogValue() slog.Value { return slog.StringValue("(secret)") }

// server is what serve and dev have in common.
type server struct {
	Listen          string        `env:"TXSVC_LISTEN" default:"127.0.0.1:8080" help:"Address to listen on. One that is not loopback needs TXSVC_INSECURE=1."`
	AllowedHosts    []string      `env:"TXSVC_ALLOWED_HOSTS" placeholder:"HOST[:PORT]" help:"Names that requests may be addressed to, and origins whose pages may send them, beside localhost and IP addresses; checked where they are given, and on loopback; * allows all."`
	Insecure        bool          `env:"TXSVC_INSECURE" help:"Serve without keys on an address that others can reach."`
	Config          string        `env:"TXSVC_CONFIG" placeholder:"FILE" help:"YAML file of kinds and topics."`
	APIKeysFile     string        `hidden:"" name:"api-keys-file" env:"TXSVC_API_KEYS_FILE" placeholder:"FILE" help:"Hashed API keys; not supported by this version."`
	MaxInFlight     int           `env:"TXSVC_MAX_IN_FLIGHT" default:"1024" help:"Transactions worked on at once; more are answered 503."`
	ShutdownTimeout time.Duration `env:"TXSVC_SHUTDOWN_TIMEOUT" default:"25s" help:"How long after its begin a stop waits for requests in flight."`
	DrainDelay      time.Duration `env:"TXSVC_DRAIN_DELAY" default:"5s" help:"How long requests are still taken after a stop has begun and /readyz fails; a part of the time that the stop has."`
	Retention       time.Duration `env:"TXSVC_RETENTION" default:"168h" help:"How long transactions are kept once their message is visible, and their ids refused for other requests; 0 keeps them for ever."`
	logging
}

func (s server) validate() error {
	if s.APIKeysFile != "" {
		return errors.New("TXSVC_API_KEYS_FILE is not supported by this version: put a proxy that checks keys in front, and unset it")
	}
	if s.MaxInFlight < 1 {
		return errors.New("TXSVC_MAX_IN_FLIGHT must be at least 1")
	}
	if s.DrainDelay < 0 || s.DrainDelay > 0 && s.DrainDelay >= s.ShutdownTimeout {
		return fmt.Errorf("TXSVC_DRAIN_DELAY=%s must be shorter than TXSVC_SHUTDOWN_TIMEOUT=%s, of which it is a part, or 0", s.DrainDelay, s.ShutdownTimeout)
	}
	if s.Retention != 0 && s.Retention < time.Minute {
		return errors.New("TXSVC_RETENTION must be at least 1m, or 0 to keep transactions for ever")
	}
	for _, name := range s.AllowedHosts {
		if name == "" || strings.ContainsAny(name, "/ \t@") {
			return fmt.Errorf("TXSVC_ALLOWED_HOSTS: %q is not a host, host:port or *", name)
		}
	}
	host, _, err := net.SplitHostPort(s.Listen)
	if err != nil {
		return fmt.Errorf("TXSVC_LISTEN: %q is not host:port", s.Listen)
	}
	if !s.Insecure && !loopback(host) {
		return fmt.Errorf("TXSVC_LISTEN: %s can be reached by others, and this version checks no keys: set TXSVC_INSECURE=1 if that is meant", s.Listen)
	}
	return nil
}

// hosts are the names that requests may be addressed to.
func (s server) hosts() http.Hosts {
	host, _, _ := net.SplitHostPort(s.Listen) // validate has looked
	return http.Hosts{Names: s.AllowedHosts, Loopback: loopback(host)}
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// logging is how every command logs: to standard error.
type logging struct {
	LogLevel  string `env:"TXSVC_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" help:"debug, info, warn or error."`
	LogFormat string `env:"TXSVC_LOG_FORMAT" default:"json" enum:"json,text" help:"json or text."`
}

func (l logging) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(strings.ToUpper(l.LogLevel))) // an enum of the command line
	options := &slog.HandlerOptions{Level: level}
	if l.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}
