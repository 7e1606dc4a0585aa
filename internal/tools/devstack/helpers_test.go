package devstack_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// fast returns options for tests that are not about durability or speed.
func fast(dir string) devstack.Options {
	return devstack.Options{
		Dir:            dir,
		PostgresConfig: map[string]string{"fsync": "off"},
		JavaOptions:    []string{"-XX:TieredStopAtLevel=1"},
		ClassArchive:   true,
		NoTimers:       true,
	}
}

// startStack starts a stack that is killed when the test ends.
func startStack(t *testing.T, o devstack.Options) *devstack.Stack {
	t.Helper()
	s, err := devstack.Start(within(t, 2*time.Minute), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// tempDir is like t.TempDir, but a dying process may still write to it.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devstack-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func query[T any](t *testing.T, ctx context.Context, url, sql string) (v T, err error) {
	t.Helper()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return v, err
	}
	defer conn.Close(ctx)
	return v, conn.QueryRow(ctx, sql).Scan(&v)
}

func mustQuery[T any](t *testing.T, url, sql string) T {
	t.Helper()
	v, err := query[T](t, within(t, 10*time.Second), url, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func mqadmin(t *testing.T, s *devstack.Stack, args ...string) string {
	t.Helper()
	out, err := s.MQAdmin(within(t, 2*time.Minute), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// send has mqadmin send a message, and returns what it prints when the broker has stored it. It retries, because
// mqadmin gives up after 3 s and a cold broker on a busy machine may need longer.
func send(t *testing.T, s *devstack.Stack, args ...string) (printed string) {
	t.Helper()
	await.True(t, 2*time.Minute, "a message is stored", func() bool {
		printed = mqadmin(t, s, append([]string{"sendMessage"}, args...)...)
		return strings.Contains(printed, "SEND_OK")
	})
	return printed
}

// ask sends RocketMQ one request without fields and returns the body of the reply.
func ask(addr string, code int) (string, error) { return askWithin(time.Minute, addr, code) }

// askWithin shares no code with the code under test.
func askWithin(limit time.Duration, addr string, code int) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(limit))
	header := fmt.Sprintf(`{"code":%d,"language":"GO","version":0,"opaque":1,"flag":0}`, code)
	frame := append([]byte{0, 0, 0, byte(4 + len(header)), 0, 0, 0, byte(len(header))}, header...)
	if _, err := conn.Write(frame); err != nil {
		return "", err
	}
	var lengths [2]uint32
	if err := binary.Read(conn, binary.BigEndian, &lengths); err != nil {
		return "", err
	}
	rest := make([]byte, lengths[0]-4)
	_, err = io.ReadFull(conn, rest)
	return string(rest[lengths[1]:]), err
}

// answers reports whether a name server or broker replies within a second.
func answers(addr string) bool {
	_, err := askWithin(time.Second, addr, 106)
	return err == nil
}

var brokerAddress = regexp.MustCompile(`"brokerAddrs":\{0:"([^"]+)"\},"brokerName":"([^"]+)"`)

// brokers returns the addresses of the brokers that the name server knows, by name.
func brokers(t *testing.T, s *devstack.Stack) map[string]string {
	t.Helper()
	info, err := ask(s.Nameservers()[0], 106)
	if err != nil {
		t.Fatalf("asking the name server: %v", err)
	}
	known := map[string]string{}
	for _, m := range brokerAddress.FindAllStringSubmatch(info, -1) {
		known[m[2]] = m[1]
	}
	return known
}
