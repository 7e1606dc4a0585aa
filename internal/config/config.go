// Package config reads the YAML file of kinds and topics. It is strict, fills in defaults, and checks the whole file before anything
// starts. It reads no environment and no flags.
//
// It reports all mistakes, each with line and column. It refuses fields that only later versions support, instead of ignoring
// them.
package config

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/txsvc/txsvc/internal/localtx/sqltext"
	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

// File is a configuration that was read.
type File struct {
	Name   string           // of the file, for errors
	Kinds  map[string]Kind  // by name; at least one
	Topics map[string]Topic // by name; those that kinds name, when the file declares none

	Warnings []Problem // things that are allowed and are rarely intended, in the order of the file
}

// Kind is one entry of kinds, with its defaults filled in: all of a txn.Kind but its selector, and its local transaction.
type Kind struct {
	txn.Kind
	Selector selector.Spec // the kind's own, else the topic's
	Local    Local
}

// Local is a kind's local transaction: a handler, or SQL.
type Local struct {
	Handler string              // name of a handler that is registered in the binary
	Place   Place               // of that name
	SQL     []sqltext.Statement // in order; nil when there is a handler

	// PlaceInSQL returns the place in the file of a character of a statement, or the nearest known place; see
	// sqltext.Locate.
	PlaceInSQL func(statement, character int) Place
}

// Place is a place in the file, for errors that are found later.
type Place struct {
	Line, Column int
	Path         string
}

// ErrorAt returns an error like those that Load finds.
func (file *File) ErrorAt(p Place, message string) error {
	return &Error{Name: file.Name, Problems: []Problem{{Line: p.Line, Column: p.Column, Path: p.Path, Message: message}}}
}

// Errors returns an error like those that Load finds, and nil when there is no problem.
func (file *File) Errors(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &Error{Name: file.Name, Problems: inOrder(problems)}
}

// Topic is one entry of topics.
type Topic struct {
	Name     string
	Selector selector.Spec
}

// Error is all that is wrong with a file.
type Error struct {
	Name     string // of the file
	Problems []Problem
}

// Problem is one mistake. Line and Column count from 1; Path names the field, like kinds.order.create.topic.
type Problem struct {
	Line, Column int
	Path         string
	Message      string
}

// String returns line:column: path: message.
func (p Problem) String() string {
	text := fmt.Sprintf("%d:%d: ", p.Line, p.Column)
	if p.Path != "" {
		text += p.Path + ": "
	}
	return text + p.Message
}

// Error returns one line per problem, after the name of the file.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = e.Name + ":" + p.String()
	}
	return strings.Join(lines, "\n")
}

// Load reads the file, which may name the given types of selectors. A mistake in it is an *Error.
func Load(name string, types selector.Registry) (*File, error) {
	text, err := os.ReadFile(name) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return Parse(name, text, os.DirFS(filepath.Dir(name)), types)
}

// Parse reads the text of a file whose name is used in errors only. Schemas are read from dir, the file's directory.
func Parse(name string, text []byte, dir fs.FS, types selector.Registry) (*File, error) {
	r := &reader{text: string(text), dir: dir, types: types, paths: make(map[string]string)}
	file := r.file()
	if len(r.problems) == 0 {
		file.Name, file.Warnings = name, inOrder(r.warnings)
		return file, nil
	}
	return nil, &Error{Name: name, Problems: inOrder(r.problems)}
}

// inOrder sorts problems by their places.
func inOrder(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return problems
}
