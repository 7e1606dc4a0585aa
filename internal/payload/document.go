package payload

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Document returns the schema as one JSON document. It is the file itself; if the file refers to others, those are in
// its $defs and the references are changed. A schema with base URIs or anchors of its own stays unchanged.
func (s *Schema) Document() json.RawMessage { return s.document }

// bundle makes one document out of the files. The named file is the schema.
func bundle(name string, files map[string][]byte) (json.RawMessage, error) {
	if len(files) == 1 {
		return files[name], nil
	}
	documents := make(map[string]any, len(files))
	for _, file := range slices.Sorted(maps.Keys(files)) {
		value, wrong := decode(files[file])
		if wrong != nil {
			return nil, fmt.Errorf("%s: %w", file, wrong)
		}
		if !rewrite(value, func(ref string) (string, bool) { return refInto(name, file, ref) }) {
			return files[name], nil
		}
		documents[file] = value
	}
	root, ok := documents[name].(map[string]any)
	if !ok {
		return files[name], nil
	}
	defs, ok := root["$defs"].(map[string]any)
	if !ok {
		defs = make(map[string]any)
		root["$defs"] = defs
	}
	for file, document := range documents {
		if file != name {
			defs[file] = document
		}
	}
	return json.Marshal(root)
}

// refInto returns a reference of one file as it has to be in the document of all files.
func refInto(root, file, ref string) (string, bool) {
	base, err := url.Parse("/" + file)
	if err != nil {
		return "", false
	}
	target, err := base.Parse(ref)
	if err != nil || target.Fragment != "" && !strings.HasPrefix(target.Fragment, "/") {
		return "", false
	}
	name := strings.TrimPrefix(target.Path, "/")
	if name == root {
		return "#" + target.Fragment, true
	}
	return "#" + pointer([]string{"$defs", name}) + target.Fragment, true
}

// rewrite changes all references of a decoded schema in place. It returns false if the schema has base URIs or anchors,
// because plain references do not find those.
func rewrite(value any, change func(ref string) (string, bool)) bool {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			text, isText := member.(string)
			switch {
			case isText && (name == "$id" || name == "$anchor" || name == "$dynamicRef" || name == "$recursiveRef"):
				return false
			case isText && name == "$ref":
				changed, ok := change(text)
				if !ok {
					return false
				}
				v[name] = changed
			case !rewrite(member, change):
				return false
			}
		}
	case []any:
		for _, item := range v {
			if !rewrite(item, change) {
				return false
			}
		}
	}
	return true
}
