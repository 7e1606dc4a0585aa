package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const oldestJava = 17

// Hints for missing tools. Each is part of a one-line error.
const (
	installJava = "install openjdk-17-jre-headless (Debian, Ubuntu), java-17-openjdk-headless (Fedora), " +
		"openjdk@17 (Homebrew) or newer, and have java in PATH or JAVA_HOME set"
	installMaven = "install maven (Debian, Ubuntu, Fedora, Homebrew), and have mvn in PATH"
)

// findJava returns the java of JAVA_HOME, or of PATH, if it is new enough, and what it says of its version.
func findJava(ctx context.Context) (java, said string, err error) {
	if java, err = javaCommand(); err != nil {
		return "", "", fmt.Errorf("RocketMQ needs Java %d or newer, and there is none: %s", oldestJava, installJava)
	}
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if ctx.Err() != nil {
		return "", "", fmt.Errorf("asking Java for its version: %w", context.Cause(ctx))
	}
	if err != nil { // macOS has a java that only says that there is none
		return "", "", fmt.Errorf("RocketMQ needs Java %d or newer, and %s does not run (%w): %s", oldestJava, java, err, installJava)
	}
	major, err := javaMajor(string(out))
	if err != nil {
		return "", "", fmt.Errorf("asking %s for its version: %w", java, err)
	}
	if major < oldestJava {
		return "", "", fmt.Errorf("RocketMQ needs Java %d or newer, and %s is Java %d: %s", oldestJava, java, major, installJava)
	}
	return java, string(out), nil
}

func javaCommand() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		return exec.LookPath(filepath.Join(home, "bin", "java"))
	}
	return exec.LookPath("java")
}

var javaVersion = regexp.MustCompile(`version "(\d+)(?:\.(\d+))?`)

// javaMajor reads the output of java -version: "17.0.15", and "1.8.0_442" for 8.
func javaMajor(out string) (int, error) {
	m := javaVersion.FindStringSubmatch(out)
	if m == nil {
		return 0, errors.New("no version in: " + strings.Join(strings.Fields(out), " "))
	}
	if m[1] == "1" && m[2] != "" {
		return strconv.Atoi(m[2])
	}
	return strconv.Atoi(m[1])
}
