package config_test

import (
	"bytes"
	"os"
	"regexp"
	"slices"
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

// geo stands for the selector of examples/custom, which is a module of its own.
var geo = registry(map[string]selector.Factory{"geo": func(options selector.Decode) (txn.Selector, error) {
	var o struct {
		Regions map[string][]int `yaml:"regions"`
	}
	return keyed{}, options(&o)
}})

// keyed states that it goes by the shard key alone.
type keyed struct{ ownSelector }

func (keyed) ByShardKey() bool { return true }

// The kinds in README.md and docs/configuration.md are read without a warning.
func TestPagesWithKinds(t *testing.T) {
	for _, page := range []string{"../../README.md", "../../docs/configuration.md"} {
		examples := blocks(t, page, "yaml")
		if len(examples) != 1 {
			t.Errorf("%s: got %d examples, want 1", page, len(examples))
		}
		for _, text := range examples {
			if file, err := config.Parse("kinds.yaml", []byte(text), os.DirFS("."), selector.Registry{}); err != nil || len(file.Warnings) > 0 {
				t.Errorf("%s: got the error %v and the warnings %v, want none", page, err, file)
			}
		}
	}
}

// The service reads the examples of the pages about routing and users' own code without a warning.
func TestPagesWithSelectors(t *testing.T) {
	examples := slices.Concat(blocks(t, "../../docs/routing.md", "yaml"), blocks(t, ownCode, "yaml"))
	if len(examples) < 6 {
		t.Errorf("got %d examples, want at least 6", len(examples))
	}
	for _, text := range examples {
		whole := text
		if !strings.Contains(text, "kinds:") {
			topic := regexp.MustCompile(`(?m)^  (\w+):`).FindStringSubmatch(text)[1]
			whole += "kinds:\n  any:\n    topic: " + topic + "\n    local: {handler: h}\n"
		}
		file, err := config.Parse("kinds.yaml", []byte(whole), nil, geo)
		if err != nil {
			t.Errorf("%v\n%s", err, whole)
		} else if len(file.Warnings) > 0 {
			t.Errorf("got the warnings %v\n%s", file.Warnings, whole)
		}
	}
}

const ownCode = "../../docs/own-code.md"

// The page about users' own code shows the code and the configuration of examples/custom.
func TestOwnCodePageShowsTheExample(t *testing.T) {
	var sources []byte
	for _, name := range []string{"main.go", "deposit.go", "transfer.go", "geo.go", "custom.yaml"} {
		text, err := os.ReadFile("../../examples/custom/" + name)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, text...)
	}
	for _, text := range append(blocks(t, ownCode, "go"), blocks(t, ownCode, "yaml")[0]) {
		if !bytes.Contains(sources, []byte(text)) {
			t.Errorf("the example is not that of examples/custom:\n%s", text)
		}
	}
}
