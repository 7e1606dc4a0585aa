// Package payload checks payloads against JSON Schema.
//
// Schemas are files in one directory. Compile refuses references to anything outside of it, so nothing is ever fetched.
// Formats are asserted. Numbers are compared exactly, however many digits they have.
package payload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/txsvc/txsvc/internal/txn"
)

// scheme is the scheme of the URLs that stand for files of the directory.
const scheme = "schema"

// Schema is a compiled schema. It is safe for concurrent use.
type Schema struct {
	compiled *jsonschema.Schema
	document json.RawMessage
}

var _ txn.Schema = (*Schema)(nil)

// Compile reads the schema in the named file; files beside and below it may be referred to. Without $schema it is read
// as draft 2020-12.
func Compile(dir fs.FS, name string) (*Schema, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, fmt.Errorf("%q is not a path below the directory", name)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	files := make(map[string][]byte)
	compiler.UseLoader(loader{dir, files})
	compiled, err := compiler.Compile((&url.URL{Scheme: scheme, Path: "/" + name}).String())
	if err != nil {
		return nil, compileError(err)
	}
	document, err := bundle(name, files)
	if err != nil {
		return nil, err
	}
	return &Schema{compiled, document}, nil
}

// CompileText is Compile for the text of a schema that refers to itself only.
func CompileText(text []byte) (*Schema, error) { return Compile(oneFile(text), oneFileName) }

const oneFileName = "schema.json"

// oneFile is a directory with one file.
type oneFile []byte

// Open finds nothing: files are read with ReadFile.
func (oneFile) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// ReadFile returns the text.
func (f oneFile) ReadFile(name string) ([]byte, error) {
	if name != oneFileName {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return f, nil
}

// compileError brings the library's message, which may have many lines, into one.
func compileError(err error) error {
	if loading, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return loading.Err
	}
	lines := strings.Split(strings.ReplaceAll(err.Error(), scheme+":///", ""), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimSpace(lines[i]), "- ")
	}
	return errors.New(strings.Join(lines, "; "))
}

// loader reads the files of one directory, and remembers them.
type loader struct {
	dir  fs.FS
	read map[string][]byte
}

func (l loader) Load(location string) (any, error) {
	u, err := url.Parse(location)
	if err != nil {
		return nil, fmt.Errorf("reading the reference %q: %w", location, err)
	}
	if u.Scheme != scheme {
		return nil, fmt.Errorf("%s is not a file beside the schema; nothing else is read", location)
	}
	name := strings.TrimPrefix(u.Path, "/")
	text, err := fs.ReadFile(l.dir, name)
	if err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	l.read[name] = text
	value, wrong := decode(text)
	if wrong != nil {
		return nil, fmt.Errorf("%s: %w", name, wrong)
	}
	return value, nil
}

// Validate returns what is wrong with the payload, sorted by pointer: at most MaxErrors, and one more that says how
// many were left out. The messages have no values of the payload, because they end up in logs. An object with the same
// name twice is wrong whatever the schema says, because consumers would not agree on the value.
func (s *Schema) Validate(payload json.RawMessage) []txn.FieldError {
	value, wrong := decode(payload)
	if wrong != nil {
		return []txn.FieldError{{Pointer: wrong.Pointer, Message: wrong.Message}}
	}
	err := s.compiled.Validate(value)
	if err == nil {
		return nil
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []txn.FieldError{{Message: "could not be checked"}}
	}
	return fieldErrors(invalid)
}
