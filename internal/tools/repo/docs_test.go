package repo

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fence   = regexp.MustCompile("(?s)```.*?```")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// pages returns the texts of all documents, by their paths from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*/*.md", ".github/*.md"} {
		found, err := filepath.Glob(root + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[strings.TrimPrefix(path, root)] = string(text)
		}
	}
	if len(texts) < 10 {
		t.Fatalf("got %d documents, want at least 10", len(texts))
	}
	return texts
}

// anchors returns the anchors that GitHub gives a document's headings.
func anchors(text string) (list []string) {
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		anchor := strings.ToLower(regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(m[1], ""))
		list = append(list, strings.ReplaceAll(anchor, " ", "-"))
	}
	return list
}

// TestLinks: each link of a document leads to a file that exists, and to a heading that the file has.
func TestLinks(t *testing.T) {
	texts := pages(t)
	for page, text := range texts {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(m[1], "://") {
				continue
			}
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(root + target); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[1])
			} else if anchor != "" && !slices.Contains(anchors(texts[target]), anchor) {
				t.Errorf("%s: the link %s leads to no heading", page, m[1])
			}
		}
	}
}

// sources returns the text of all Go files whose names end so.
func sources(t *testing.T, suffix string) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"internal", "migrations", "examples", "cmd"} {
		err := filepath.WalkDir(root+dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, suffix) {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// TestNamedTestsExist: a document that names a test as its proof names one that there is.
func TestNamedTestsExist(t *testing.T) {
	tests, named := sources(t, "_test.go"), regexp.MustCompile(`\bTest[A-Z]\w+`)
	for page, text := range pages(t) {
		for _, name := range named.FindAllString(text, -1) {
			if !strings.Contains(tests, "func "+name+"(") {
				t.Errorf("%s names %s, and there is no such test", page, name)
			}
		}
	}
}

// TestNamedVariablesExist: the code reads each environment variable that a document names.
func TestNamedVariablesExist(t *testing.T) {
	code, named := sources(t, ".go"), regexp.MustCompile(`\bTXSVC_[A-Z_]+[A-Z]\b`)
	for page, text := range pages(t) {
		for _, name := range named.FindAllString(text, -1) {
			if !strings.Contains(code, name) {
				t.Errorf("%s names %s, and no code reads it", page, name)
			}
		}
	}
}

// TestNamedTargetsExist: each `make TARGET` of a document is a target of the Makefile.
func TestNamedTargetsExist(t *testing.T) {
	makefile, err := os.ReadFile(root + "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("(?m)(?:^|`| )make ([a-z]+)\\b(?:`| +FAULTS|$|  )")
	for page, text := range pages(t) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).Match(makefile) {
				t.Errorf("%s names make %s, and there is no such target", page, m[1])
			}
		}
	}
}
