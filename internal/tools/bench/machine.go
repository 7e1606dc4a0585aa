package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// machine is on what, and with which settings, was measured.
type machine struct {
	CPU        string            `json:"cpu"`
	Cores      int               `json:"cores"`
	MemoryGiB  int               `json:"memory_gib"`
	Kernel     string            `json:"kernel"`
	Go         string            `json:"go"`
	GOMAXPROCS string            `json:"gomaxprocs"`
	Java       string            `json:"java"`
	Commit     string            `json:"commit"`
	PostgreSQL string            `json:"postgresql"`
	Settings   map[string]string `json:"postgresql_settings"`
	RocketMQ   string            `json:"rocketmq"`
	Broker     string            `json:"broker"`
}

// postgresSettings are those that change what a COMMIT costs.
var postgresSettings = []string{"fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "wal_level", "shared_buffers", "max_wal_size", "checkpoint_timeout", "autovacuum"}

func (b *bench) machine(ctx context.Context) machine {
	m := machine{
		Cores: runtime.NumCPU(), Go: runtime.Version(), GOMAXPROCS: fmt.Sprint(runtime.GOMAXPROCS(0)),
		CPU: fieldOf("/proc/cpuinfo", "model name"), Kernel: strings.TrimSpace(read("/proc/sys/kernel/osrelease")),
		PostgreSQL: devstack.PostgresVersion, RocketMQ: devstack.RocketMQVersion, Settings: map[string]string{},
		Broker: "default settings (flushDiskType ASYNC_FLUSH), " + strings.Join(javaOptions, " "),
		Java:   firstLine(ctx, "java", "-version"), Commit: firstLine(ctx, "git", "-C", b.Root, "describe", "--always", "--dirty"),
	}
	var kb int
	if _, err := fmt.Sscan(fieldOf("/proc/meminfo", "MemTotal"), &kb); err == nil {
		m.MemoryGiB = (kb + 1<<19) >> 20
	}
	for _, name := range postgresSettings {
		var value string
		if err := b.db.QueryRow(ctx, "select current_setting($1)", name).Scan(&value); err == nil {
			m.Settings[name] = value
		}
	}
	return m
}

// String returns two lines for people.
func (m machine) String() string {
	var settings []string
	for _, name := range postgresSettings {
		settings = append(settings, name+"="+m.Settings[name])
	}
	return fmt.Sprintf("%d × %s, %d GiB, Linux %s, %s (GOMAXPROCS %s), txsvc %s\nPostgreSQL %s (%s)\nRocketMQ %s (%s), %s",
		m.Cores, m.CPU, m.MemoryGiB, m.Kernel, m.Go, m.GOMAXPROCS, m.Commit, m.PostgreSQL, strings.Join(settings, ", "), m.RocketMQ, m.Broker, m.Java)
}

func read(file string) string {
	text, _ := os.ReadFile(file) //nolint:gosec // of the system
	return string(text)
}

// fieldOf returns the value of the first line "name : value".
func fieldOf(file, name string) string {
	lines := bufio.NewScanner(strings.NewReader(read(file)))
	for lines.Scan() {
		if before, after, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(before) == name {
			return strings.TrimSpace(after)
		}
	}
	return ""
}

func firstLine(ctx context.Context, name string, args ...string) string {
	out, _ := exec.CommandContext(ctx, name, args...).CombinedOutput()
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}
