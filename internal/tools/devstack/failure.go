package devstack

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// logbackStatus matches the lines that RocketMQ's logging writes to standard output about its own configuration,
// hundreds at each start.
var logbackStatus = regexp.MustCompile(`^\d\d:\d\d:\d\d,\d{3} \|-`)

// bindFailures has the messages of PostgreSQL and Java about a port in use.
var bindFailures = []string{"Address already in use", "BindException", "could not create any TCP/IP sockets"}

// endedEarly returns the error of a process that ended before it was ready, with the process's last output.
func (p *Process) endedEarly(r *running) error {
	said := logSince(p.spec.log, r.logFrom)
	err := errors.New("it ended")
	for _, words := range bindFailures {
		if strings.Contains(said, words) {
			err = errPortTaken
		}
	}
	return fmt.Errorf("%w (%s); the end of %s:\n%s", err, r.state, p.spec.log, lastLines(said))
}

// said returns the output of the process in its present life.
func (p *Process) said() string {
	r := p.current()
	if r == nil {
		return ""
	}
	return logSince(p.spec.log, r.logFrom)
}

// logSince returns the log file from an offset on, without noise.
func logSince(path string, offset int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return err.Error()
	}
	return withoutNoise(f)
}

func withoutNoise(r io.Reader) string {
	var kept strings.Builder
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !logbackStatus.Match(lines.Bytes()) {
			kept.WriteString(lines.Text() + "\n")
		}
	}
	return kept.String()
}

// lastLines returns the part of a long output that an error shows.
func lastLines(s string) string {
	const n = 15
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
