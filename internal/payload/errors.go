package payload

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/txsvc/txsvc/internal/txn"
)

// MaxErrors bounds the reported errors of one payload.
const MaxErrors = 50

// fieldErrors lists the errors at the leaves, the ones that a client can act on.
func fieldErrors(invalid *jsonschema.ValidationError) []txn.FieldError {
	list := leaves(invalid)
	slices.SortFunc(list, func(a, b txn.FieldError) int {
		return strings.Compare(a.Pointer+"\x00"+a.Message, b.Pointer+"\x00"+b.Message)
	})
	list = slices.Compact(list)
	if left := len(list) - MaxErrors; left > 0 {
		list = append(list[:MaxErrors], txn.FieldError{Message: "there are " + strconv.Itoa(left) + " more errors"})
	}
	return list
}

func leaves(e *jsonschema.ValidationError) []txn.FieldError {
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		return each(e, k.Missing, "is required")
	case *kind.DependentRequired:
		return each(e, k.Missing, "is required beside "+k.Prop)
	case *kind.Dependency:
		return each(e, k.Missing, "is required beside "+k.Prop)
	case *kind.AdditionalProperties:
		return each(e, k.Properties, "is unknown")
	case *kind.PropertyNames:
		return each(e, []string{k.Property}, "has a name that is not allowed")
	case *kind.AnyOf:
		return alternatives(e)
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			return []txn.FieldError{at(e, "must have exactly one of the allowed forms, and has two")}
		}
		return alternatives(e)
	case *kind.Contains, *kind.MinContains, *kind.MaxContains, *kind.Not:
		return []txn.FieldError{at(e, message(k))}
	}
	if len(e.Causes) == 0 {
		return []txn.FieldError{at(e, message(e.ErrorKind))}
	}
	return gather(e.Causes)
}

func gather(causes []*jsonschema.ValidationError) []txn.FieldError {
	list := make([]txn.FieldError, 0, len(causes))
	for _, cause := range causes {
		list = append(list, leaves(cause)...)
	}
	return list
}

// alternatives returns the errors of the one alternative whose type the value has, if there is exactly one. Errors of
// the others would only confuse.
func alternatives(e *jsonschema.ValidationError) []txn.FieldError {
	var near []*jsonschema.ValidationError
	for _, cause := range e.Causes {
		if _, otherType := cause.ErrorKind.(*kind.Type); !otherType || len(cause.InstanceLocation) != len(e.InstanceLocation) {
			near = append(near, cause)
		}
	}
	if len(near) == 1 {
		return leaves(near[0])
	}
	return []txn.FieldError{at(e, "has none of the allowed forms")}
}

func at(e *jsonschema.ValidationError, text string) txn.FieldError {
	return txn.FieldError{Pointer: pointer(e.InstanceLocation), Message: text}
}

// each returns one error per named member of the object at e.
func each(e *jsonschema.ValidationError, names []string, text string) []txn.FieldError {
	list := make([]txn.FieldError, len(names))
	for i, name := range names {
		list[i] = txn.FieldError{Pointer: pointer(append(slices.Clip(e.InstanceLocation), name)), Message: text}
	}
	return list
}

// pointer is the RFC 6901 pointer of a location.
func pointer(location []string) string {
	var p jsontext.Pointer
	for _, token := range location {
		p = p.AppendToken(token)
	}
	return string(p)
}

// message says what the schema requires. It names values of the schema, never of the payload.
func message(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "must be of type " + strings.Join(k.Want, " or ") + ", not " + k.Got
	case *kind.Enum:
		return "must be one of " + values(k.Want)
	case *kind.Const:
		return "must be " + values([]any{k.Want})
	case *kind.Format:
		return "must have the format " + k.Want
	case *kind.Pattern:
		return "must match the pattern " + k.Want
	case *kind.FalseSchema:
		return "is not allowed"
	case *kind.Not:
		return "has a form that is not allowed"
	case *kind.UniqueItems:
		return fmt.Sprintf("the items %d and %d are equal", k.Duplicates[0], k.Duplicates[1])
	case *kind.AdditionalItems:
		return fmt.Sprintf("has %d items more than allowed", k.Count)
	case *kind.Contains:
		return "has no item of the form that is required"
	default:
		return bound(k)
	}
}

// bound returns the message for a value that is too small, too large, too short or too long.
func bound(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Minimum:
		return "must be at least " + number(k.Want)
	case *kind.Maximum:
		return "must be at most " + number(k.Want)
	case *kind.ExclusiveMinimum:
		return "must be more than " + number(k.Want)
	case *kind.ExclusiveMaximum:
		return "must be less than " + number(k.Want)
	case *kind.MultipleOf:
		return "must be a multiple of " + number(k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items", k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d members", k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d members", k.Want)
	case *kind.MinContains:
		return fmt.Sprintf("must have at least %d items of the form that is required", k.Want)
	case *kind.MaxContains:
		return fmt.Sprintf("must have at most %d items of the form that is limited", k.Want)
	default:
		return "does not meet the schema"
	}
}

// number writes an exact number: with all its digits if it is whole, as a decimal otherwise.
func number(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	digits, exact := r.FloatPrec()
	if !exact {
		return r.RatString()
	}
	return r.FloatString(digits)
}

// values lists values of the schema as JSON, the first ten.
func values(want []any) string {
	const most = 10
	texts := make([]string, 0, most+1)
	for i, value := range want {
		if i == most {
			texts = append(texts, "…")
			break
		}
		text, err := json.Marshal(value)
		if err != nil {
			return "the values of the schema"
		}
		texts = append(texts, string(text))
	}
	return strings.Join(texts, ", ")
}
