package http

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/txsvc/txsvc/internal/strictjson"
	"github.com/txsvc/txsvc/internal/txn"
)

// samplePath is the path in openapi.yaml in whose place the kinds' own paths are served.
const samplePath = "/v1/orders"

// document is openapi.yaml as an instance serves it: the sample is replaced by the instance's own kinds, each with its path and the
// schema of its payload. The result is OpenAPI 3.1, because its schemas are JSON Schema, as those of the kinds are; openapi.yaml
// is 3.0.
func document(contract []byte, kinds []*txn.Kind) ([]byte, error) {
	var doc yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(contract, &doc, yaml.UseOrderedMap()); err != nil {
		return nil, fmt.Errorf("reading openapi.yaml: %w", err)
	}
	set(doc, "openapi", "3.1.0")
	upgrade(doc)
	paths, _ := get(doc, "paths").(yaml.MapSlice)
	components, _ := get(doc, "components").(yaml.MapSlice)
	schemas, _ := get(components, "schemas").(yaml.MapSlice)
	sample := slices.IndexFunc(paths, func(item yaml.MapItem) bool { return item.Key == samplePath })
	if sample < 0 || schemas == nil {
		return nil, fmt.Errorf("openapi.yaml has no %s or no schemas", samplePath)
	}
	post, _ := get(paths[sample].Value, "post").(yaml.MapSlice)
	var own yaml.MapSlice
	for _, kind := range kinds {
		name, payload := "payload."+kind.Name, payloadSchema(kind)
		request := any(ref("KindRequest"))
		if payload != nil {
			schemas = append(schemas, yaml.MapItem{Key: name, Value: payload})
			request = yaml.MapSlice{{Key: "allOf", Value: []any{
				ref("KindRequest"), yaml.MapSlice{{Key: "properties", Value: yaml.MapSlice{{Key: "payload", Value: ref(name)}}}},
			}}}
		}
		if kind.Path != "" {
			own = append(own, yaml.MapItem{Key: kind.Path, Value: yaml.MapSlice{{Key: "post", Value: operation(post, kind, request, payload)}}})
		}
	}
	set(components, "schemas", schemas)
	set(doc, "paths", slices.Concat(paths[:sample], own, paths[sample+1:]))
	return yaml.MarshalWithOptions(doc, yaml.UseLiteralStyleIfMultiline(true))
}

// operation adapts the sample's operation to a kind.
func operation(sample yaml.MapSlice, kind *txn.Kind, request, payload any) yaml.MapSlice {
	media := yaml.MapSlice{{Key: "schema", Value: request}}
	if examples, ok := get(payload, "examples").([]any); ok && len(examples) > 0 {
		media = append(media, yaml.MapItem{Key: "example", Value: yaml.MapSlice{{Key: "shard_key", Value: "acme"}, {Key: "payload", Value: examples[0]}}})
	}
	post := slices.Clone(sample)
	set(post, "operationId", "submit."+kind.Name)
	set(post, "summary", "Run one transaction of the kind "+kind.Name)
	set(post, "description", "Does what `POST /v1/transactions` does; the body has no `kind`.")
	set(post, "requestBody", yaml.MapSlice{
		{Key: "required", Value: true},
		{Key: "content", Value: yaml.MapSlice{{Key: "application/json", Value: media}}},
	})
	return post
}

func ref(schema string) yaml.MapSlice {
	return yaml.MapSlice{{Key: "$ref", Value: "#/components/schemas/" + schema}}
}

// payloadSchema is the schema of a kind's payload as a component of the document. It is nil where the kind has none, or one that
// cannot be part of another document because of base URIs, anchors, or another draft than that of OpenAPI 3.1.
func payloadSchema(kind *txn.Kind) any {
	if kind.Schema == nil {
		return nil
	}
	value, err := ordered.Decode(kind.Schema.Document())
	root, isObject := value.(yaml.MapSlice)
	if err != nil || !isObject {
		return nil
	}
	if draft, ok := get(root, "$schema").(string); ok && !strings.Contains(draft, "2020-12") {
		return nil
	}
	if !embed(root, "#/components/schemas/payload."+kind.Name) {
		return nil
	}
	return root
}

// embed changes references to the root of a schema to its place in the document.
func embed(value any, at string) bool {
	switch v := value.(type) {
	case yaml.MapSlice:
		for i := range v {
			text, isText := v[i].Value.(string)
			switch v[i].Key {
			case "$id", "$anchor", "$dynamicRef", "$dynamicAnchor":
				if isText {
					return false
				}
			case "$ref":
				if isText && text != "#" && !strings.HasPrefix(text, "#/") {
					return false
				}
				if isText {
					v[i].Value = at + text[1:]
				}
			}
			if !embed(v[i].Value, at) {
				return false
			}
		}
	case []any:
		for _, item := range v {
			if !embed(item, at) {
				return false
			}
		}
	}
	return true
}

// anyType are the types of JSON.
var anyType = []any{"null", "boolean", "number", "string", "array", "object"}

// upgrade turns schemas of OpenAPI 3.0 into those of 3.1, in which null is one of the types.
func upgrade(value any) {
	switch v := value.(type) {
	case yaml.MapSlice:
		for i := range v {
			upgrade(v[i].Value)
			if v[i].Key == "nullable" && v[i].Value == true {
				if kind, ok := get(v, "type").(string); ok {
					set(v, "type", []any{kind, "null"})
				} else {
					v[i] = yaml.MapItem{Key: "type", Value: anyType}
				}
				if allowed, ok := get(v, "enum").([]any); ok {
					set(v, "enum", append(slices.Clone(allowed), nil))
				}
			}
		}
	case []any:
		for _, item := range v {
			upgrade(item)
		}
	}
}

// ordered preserves the order of members. Numbers become those of YAML.
var ordered = strictjson.Builder[yaml.MapSlice]{
	Object: func() yaml.MapSlice { return yaml.MapSlice{} },
	Add: func(object yaml.MapSlice, name string, value any) yaml.MapSlice {
		return append(object, yaml.MapItem{Key: name, Value: value})
	},
	Number: func(text json.Number) (any, error) {
		if n, err := text.Int64(); err == nil {
			return n, nil
		}
		return text.Float64()
	},
}

func get(value any, key string) any {
	m, _ := value.(yaml.MapSlice)
	for _, item := range m {
		if item.Key == key {
			return item.Value
		}
	}
	return nil
}

// set changes an existing member.
func set(m yaml.MapSlice, key string, value any) {
	for i := range m {
		if m[i].Key == key {
			m[i].Value = value
		}
	}
}
