// Package repo tests the repository itself: that the linter has a rule for each package, and that documents name only files,
// tests and targets that exist.
package repo

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const (
	root     = "../../../"
	module   = "github.com/txsvc/txsvc"
	domain   = "internal/txn"
	commands = "internal/app"
)

// rule is one of depguard's.
type rule struct {
	ListMode string   `yaml:"list-mode"`
	Files    []string `yaml:"files"`
	Allow    []string `yaml:"allow"`
}

// TestEachPackageHasARule: a package without a rule may import anything, because depguard checks no file that no rule names.
func TestEachPackageHasARule(t *testing.T) {
	rules := read(t)
	packages := list(t)
	for _, p := range packages {
		if r, ok := rules[p]; !ok || r.ListMode != "strict" {
			t.Errorf("the package %s has no strict rule in .golangci.yml: list there what it may import", p)
		}
	}
	for dir := range rules {
		if !slices.Contains(packages, dir) {
			t.Errorf(".golangci.yml has a rule for %s, and there is no such package", dir)
		}
	}
}

// TestToolsStayOutOfTheProduct: only the commands of internal/app may import tools, because they run some of them.
func TestToolsStayOutOfTheProduct(t *testing.T) {
	for dir, r := range read(t) {
		for _, allowed := range r.Allow {
			own, isOwn := strings.CutPrefix(allowed, module)
			if isOwn && !strings.HasSuffix(own, "$") {
				t.Errorf("%s: %q allows packages below it, too: end it with $", dir, allowed)
			}
			if strings.HasPrefix(own, "/internal/tools") && !strings.HasPrefix(dir, "internal/tools/") && dir != commands {
				t.Errorf("%s may import %s: tools are for tests and commands", dir, allowed)
			}
			if dir == domain && isOwn {
				t.Errorf("%s may import %s: the domain imports nothing of this module", dir, allowed)
			}
		}
	}
}

// read returns the rules for files that are not tests, by the directory of their package ("." for the root).
func read(t *testing.T) map[string]rule {
	t.Helper()
	text, err := os.ReadFile(root + ".golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]rule `yaml:"rules"`
				} `yaml:"depguard"`
			} `yaml:"settings"`
		} `yaml:"linters"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	rules := map[string]rule{}
	for name, r := range file.Linters.Settings.Depguard.Rules {
		if len(r.Files) == 0 || strings.HasPrefix(r.Files[0], "!") || strings.HasSuffix(r.Files[0], "_test.go") {
			continue
		}
		dir, ok := strings.CutSuffix(strings.TrimPrefix(r.Files[0], "**/"), "*.go")
		if dir = strings.TrimSuffix(dir, "/"); dir == "" {
			dir = "."
		}
		if _, twice := rules[dir]; !ok || twice {
			t.Errorf("the rule %s: got the files %q, want one rule per package, with **/DIRECTORY/*.go first", name, r.Files)
		}
		rules[dir] = r
	}
	return rules
}

// list returns the directories of the module's packages that have other files than tests.
func list(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-f", "{{if .GoFiles}}{{.ImportPath}}{{end}}", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(fmt.Errorf("go list: %w", err))
	}
	var dirs []string
	for _, path := range strings.Fields(string(out)) {
		if dir := strings.TrimPrefix(strings.TrimPrefix(path, module), "/"); dir != "" {
			dirs = append(dirs, dir)
		} else {
			dirs = append(dirs, ".")
		}
	}
	return dirs
}
