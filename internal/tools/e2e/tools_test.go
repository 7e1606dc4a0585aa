package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestToolsAreNamed runs what `make test` begins with where nothing is installed, and nothing can be fetched.
func TestToolsAreNamed(t *testing.T) {
	t.Parallel()
	bin, home := t.TempDir(), t.TempDir()
	for _, name := range []string{"bash", "chmod", "env", "grep", "id", "ln", "mkdir", "mktemp", "rm"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"apt-get", "dpkg-deb", "go", "python3"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "../../../.ci/tools")
	cmd.Env = []string{"HOME=" + home, "PATH=" + bin}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "these programs are missing, and could not be fetched: Schemathesis ") ||
		!strings.Contains(string(out), ", and Prometheus with promtool") {
		t.Errorf("got %s (%v), want an error that names both programs", out, err)
	}
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if _, recipe, _ := strings.Cut(string(makefile), "\ntest:"); !strings.Contains(recipe, "\n\t@.ci/tools\n\tgo build") {
		t.Error("make test does not begin with .ci/tools")
	}
}
