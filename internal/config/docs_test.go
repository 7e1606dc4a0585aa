package config_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/txsvc/txsvc/internal/config"
	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

// blocks returns the parts of a page that are written in a language.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, part := range strings.Split(string(text), "```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		list = append(list, block)
	}
	return list
}

// byRegion stands for the selector of the example, whose Go is compiled where it is.
var byRegion = registry(map[string]selector.Factory{"by_region": func(options selector.Decode) (txn.Selector, error) {
	var o struct {
		Regions map[string]int `yaml:"regions"`
	}
	return ownSelector{}, options(&o)
}})

// The kinds in README.md and docs/configuration.md are read without a warning.
func TestPagesWithKinds(t *testing.T) {
	for _, page := range []string{"../../README.md", "../../docs/configuration.md"} {
		examples := blocks(t, page, "yaml")
		if len(examples) != 1 {
			t.Errorf("%s: got %d examples, want 1", page, len(examples))
		}
		for _, text := range examples {
			if file, err := config.Parse("kinds.yaml", []byte(text), os.DirFS(".")); err != nil || len(file.Warnings) > 0 {
				t.Errorf("%s: got the error %v and the warnings %v, want none", page, err, file)
			}
		}
	}
}

// What the page about routing shows is what the service reads, without a warning.
func TestRoutingPage(t *testing.T) {
	const page = "../../docs/routing.md"
	examples := blocks(t, page, "yaml")
	if len(examples) < 5 {
		t.Errorf("got %d examples, want at least 5", len(examples))
	}
	for _, text := range examples {
		whole := text
		if !strings.Contains(text, "kinds:") {
			topic := regexp.MustCompile(`(?m)^  (\w+):`).FindStringSubmatch(text)[1]
			whole += "kinds:\n  any:\n    topic: " + topic + "\n    local: {handler: h}\n"
		}
		file, err := config.Parse("routing.md", []byte(whole), nil, byRegion)
		if err != nil {
			t.Errorf("%v\n%s", err, whole)
		} else if len(file.Warnings) > 0 {
			t.Errorf("got the warnings %v\n%s", file.Warnings, whole)
		}
	}
	source, err := os.ReadFile("../selector/example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range blocks(t, page, "go") {
		if !strings.Contains(string(source), text) {
			t.Errorf("the example in Go is not the one that is compiled:\n%s", text)
		}
	}
}
