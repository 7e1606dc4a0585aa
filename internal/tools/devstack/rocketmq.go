package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf16"
)

// IndexThread is the name of the thread with which a broker writes its consume queues and its index, for
// [Process.PauseThread].
const IndexThread = "ReputMessageService"

// The main classes of RocketMQ's servers.
const (
	namesrvMain = "org.apache.rocketmq.namesrv.NamesrvStartup"
	brokerMain  = "org.apache.rocketmq.broker.BrokerStartup"
)

// BrokerName returns the name of the i-th broker, from 0: broker-a, broker-b, …
func BrokerName(i int) string { return "broker-" + string(rune('a'+i)) }

// javaCommandLine runs main with its own home, where RocketMQ logs, and its own
// directory for temporary files: the JVMs are often killed, and RocksDB alone leaves
// 13 MB each time. Without TLS the servers do not make a key pair at each start,
// which is half of a name server's start and a third of a broker's. Versions before 5.3
// reach into java.nio by reflection, which Java 17 forbids unless it is told otherwise.
func javaCommandLine(java, classpath, home string, options []string, main ...string) []string {
	args := []string{java, "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Dtls.server.mode=disabled",
		"--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
		"-Drocketmq.broker.multiPathSplitter=//", // not a comma, which a directory's name may hold
		"-Drocketmq.home.dir=" + home, "-Duser.home=" + home, "-Djava.io.tmpdir=" + javaTemp(home)}
	args = append(append(args, options...), "-cp", classpath)
	return append(args, main...)
}

func javaTemp(home string) string { return filepath.Join(home, "tmp") }

// freshHome removes temporary files of former lives. It also makes a file that configures RocketMQ 4's logging, because
// that version does not start without one.
func freshHome(home string) error {
	if err := os.RemoveAll(javaTemp(home)); err != nil {
		return err
	}
	conf := filepath.Join(home, "conf")
	if err := errors.Join(os.MkdirAll(javaTemp(home), 0o755), os.MkdirAll(conf, 0o755)); err != nil {
		return err
	}
	for _, of := range []string{"namesrv", "broker", "tools"} {
		if err := writeFile(filepath.Join(conf, "logback_"+of+".xml"), []byte(logback), 0o644); err != nil {
			return err
		}
	}
	return nil
}

const logback = `<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>${user.home}/logs/rocketmq.log</file>
    <encoder><pattern>%d %p %t %c - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
`

// javaEnv is the environment of the JVMs, without RocketMQ's variables and JAVA_TOOL_OPTIONS of this process.
func javaEnv() []string { return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"} }

// rocketmqSpec is a RocketMQ process with a home and a configuration file.
func rocketmqSpec(s *Stack, name, main string, heap []string, config map[string]string) spec {
	home := s.dir.join("rocketmq", name)
	conf := filepath.Join(home, name+".conf")
	if s.install.archives != "" {
		heap = append(heap, "-XX:SharedArchiveFile="+filepath.Join(s.install.archives, archiveOf(main)))
	}
	return spec{
		name: name, dir: home, env: javaEnv(), log: s.dir.log(name),
		args: javaCommandLine(s.install.java, s.install.classpath, home,
			append(heap, s.opts.JavaOptions...), main, "-c", conf),
		prepare: func() error { return errors.Join(freshHome(home), writeProperties(conf, config)) },
		orderly: syscall.SIGTERM, immediate: syscall.SIGKILL, timerSlack: s.opts.TimerSlack,
	}
}

func namesrvSpec(s *Stack) spec {
	home := s.dir.join("rocketmq", "namesrv")
	sp := rocketmqSpec(s, "namesrv", namesrvMain, []string{"-Xmx256m"},
		map[string]string{
			"listenPort":      strconv.Itoa(s.ports.Namesrv),
			"bindAddress":     "127.0.0.1",
			"kvConfigPath":    filepath.Join(home, "kvConfig.json"),
			"configStorePath": filepath.Join(home, "namesrv.properties"),
		})
	sp.ready = s.namesrvReady
	return sp
}

func slaveName(i int) string { return BrokerName(i) + "-slave" }

// brokerSpec returns the spec of the i-th broker. The lines of extra override all others.
func brokerSpec(s *Stack, i int, extra map[string]string) spec {
	lines := map[string]string{}
	maps.Copy(lines, s.opts.BrokerConfig)
	maps.Copy(lines, extra)
	return masterOrSlave(s, i, BrokerName(i), s.ports.Brokers[i], lines, func() *Process { return s.brokers[i] })
}

// slaveSpec returns the spec of the i-th broker's slave. A slave gets its master's address from a name server when it
// registers.
func slaveSpec(s *Stack, i int) spec {
	lines := map[string]string{}
	maps.Copy(lines, s.opts.BrokerConfig)
	lines["brokerRole"], lines["brokerId"] = "SLAVE", "1"
	return masterOrSlave(s, i, slaveName(i), s.ports.Slaves[i], lines, func() *Process { return s.slaves[i] })
}

// masterOrSlave returns the spec of a broker process with that name. lines override the settings that all brokers have.
func masterOrSlave(s *Stack, i int, name string, port int, lines map[string]string, process func() *Process) spec {
	store := s.dir.join("rocketmq", name, "store")
	config := map[string]string{
		"brokerClusterName":        "DefaultCluster",
		"brokerName":               BrokerName(i),
		"brokerId":                 "0",
		"namesrvAddr":              s.Nameservers()[0],
		"brokerIP1":                "127.0.0.1",
		"brokerIP2":                "127.0.0.1",
		"bindAddress":              "127.0.0.1",
		"listenPort":               strconv.Itoa(port),
		"storePathRootDir":         store,
		"autoCreateTopicEnable":    "false",
		"registerNameServerPeriod": "10000", // the least: a lost registration comes back sooner
		"mappedFileSizeCommitLog":  strconv.Itoa(64 << 20),
		"maxHashSlotNum":           "500000", // the index file: 42 MB instead of 420, sparse
		"maxIndexNum":              "2000000",
		// By default the broker compares the timer wheel of delayed messages with its file once a second, byte by byte,
		// 37 MB. That costs a sixth of a core for nothing, because the broker rebuilds the wheel from the messages
		// after a crash.
		"timerFlushIntervalMs": "60000",
		// A thread of the broker spins, a whole core, until this time has passed after the start, 10 s by default
		// (TransactionMetricsFlushService).
		"transactionMetricFlushInterval": "200",
		"cleanFileForciblyEnable":        "false", // a disk filled by others must not cost messages
		"enablePropertyFilter":           "true",  // consumers may filter by SQL92; off by default
	}
	if s.opts.NoTimers {
		config["timerWheelEnable"], config["reviveQueueNum"] = "false", "1"
	}
	maps.Copy(config, lines)
	sp := rocketmqSpec(s, name, brokerMain, []string{"-Xms64m", "-Xmx512m"}, config)
	sp.ready = func(ctx context.Context) error {
		return s.brokerReady(ctx, process(), BrokerName(i), fmt.Sprintf("127.0.0.1:%d", port))
	}
	// The broker removes this file when its store is closed, and then waits 3 s more
	// for a client thread.
	sp.settled = func() bool {
		_, err := os.Stat(filepath.Join(store, "abort"))
		return errors.Is(err, fs.ErrNotExist)
	}
	return sp
}

// ReconfigureBroker changes how the i-th broker runs, from its next start on: further lines of its broker.conf and
// variables of its environment (NAME=value), which win over those that the stack was started with. Nil removes earlier
// ones.
func (s *Stack) ReconfigureBroker(i int, config map[string]string, env []string) {
	sp, p := brokerSpec(s, i, config), s.brokers[i]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spec.prepare, p.spec.env = sp.prepare, slices.Concat(sp.env, env)
}

// writeProperties writes a Java properties file.
func writeProperties(path string, config map[string]string) error {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(config)) {
		fmt.Fprintf(&b, "%s=%s\n", key, escapeProperty(config[key]))
	}
	if err := writeFile(path, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("writing its configuration: %w", err)
	}
	return nil
}

// escapeProperty writes all but printable ASCII as UTF-16 escapes, because Java reads properties as ISO 8859-1.
func escapeProperty(value string) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(value)) {
		switch {
		case unit == '\\':
			b.WriteString(`\\`)
		case unit < ' ' || unit > '~':
			fmt.Fprintf(&b, `\u%04x`, unit)
		default:
			b.WriteByte(byte(unit))
		}
	}
	return b.String()
}

// MQAdmin runs RocketMQ's mqadmin against the name servers and returns its output. Callers have to look at the output,
// because mqadmin reports most failures only there. Each call starts a JVM, which takes a second or more.
func MQAdmin(ctx context.Context, classpath string, nameservers []string, args ...string) (string, error) {
	java, err := javaCommand()
	if err != nil {
		return "", fmt.Errorf("devstack: mqadmin needs Java: %w", err)
	}
	home, err := os.MkdirTemp("", "txsvc-mqadmin-")
	if err != nil {
		return "", fmt.Errorf("devstack: making a home for mqadmin: %w", err)
	}
	defer os.RemoveAll(home)
	if err := freshHome(home); err != nil {
		return "", fmt.Errorf("devstack: making a home for mqadmin: %w", err)
	}
	main := append([]string{"org.apache.rocketmq.tools.command.MQAdminStartup"}, args...)
	if !slices.Contains(args, "-n") {
		main = append(main, "-n", strings.Join(nameservers, ";"))
	}
	line := javaCommandLine(java, classpath, home, []string{"-XX:TieredStopAtLevel=1"}, main...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = javaEnv()
	out, err := cmd.CombinedOutput()
	said := withoutNoise(bytes.NewReader(out))
	if err != nil {
		return said, fmt.Errorf("devstack: mqadmin %s: %w:\n%s", strings.Join(args, " "), err, lastLines(said))
	}
	return said, nil
}
