package devstack

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestJavaMajor(t *testing.T) {
	for out, want := range map[string]int{
		`openjdk version "17.0.15" 2025-04-15`:                                    17,
		`java version "1.8.0_442"`:                                                8,
		`openjdk version "21" 2023-09-19`:                                         21,
		`openjdk version "25-ea" 2025-09-16`:                                      25,
		"Picked up JAVA_TOOL_OPTIONS: -Dx\nopenjdk version \"11.0.2\" 2019-01-15": 11,
	} {
		if got, err := javaMajor(out); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", out, got, err, want)
		}
	}
	if got, err := javaMajor("command not found"); err == nil {
		t.Errorf("got %d for no version, want an error", got)
	}
}

// The error about a missing tool is one line that says what to install.
func TestMissingTools(t *testing.T) {
	tests := map[string]struct {
		java    string // what the fake java does; empty is no java
		want    string
		install string
	}{
		"no Java":            {"", "needs Java 17 or newer, and there is none", installJava},
		"old Java":           {`echo 'openjdk version "11.0.2"' >&2`, "is Java 11", installJava},
		"macOS without Java": {`echo 'Unable to locate a Java Runtime.' >&2; exit 1`, "does not run", installJava},
		"Java, but no Maven": {`echo 'openjdk version "21.0.1"' >&2`, "needs Maven, and there is none", installMaven},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			t.Setenv("PATH", bin)
			t.Setenv("JAVA_HOME", "")
			if test.java != "" {
				script := "#!/bin/sh\n" + test.java + "\n"
				if err := os.WriteFile(filepath.Join(bin, "java"), []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Start(context.Background(), Options{Dir: t.TempDir(), CacheDir: t.TempDir()})
			if err == nil {
				t.Fatal("got a stack, want an error")
			}
			got := err.Error()
			if !strings.Contains(got, test.want) || !strings.Contains(got, test.install) || strings.Contains(got, "\n") {
				t.Errorf("got %q, want one line with %q and %q", got, test.want, test.install)
			}
		})
	}
}
