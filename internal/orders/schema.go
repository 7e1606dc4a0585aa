package orders

import (
	"embed"
	stdjson "encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/txsvc/txsvc/internal/payload"
	"github.com/txsvc/txsvc/internal/txn"
)

//go:embed order.json
var files embed.FS

// orderSchema is order.json. It passes ordinary orders without the work that it takes to find all that is wrong with one:
// that costs ten times as much.
type orderSchema struct{ *payload.Schema }

var schema = orderSchema{payload.MustCompile(files, "order.json")}

// Schema is what the handler takes as a payload. The schema refuses what the tables' constraints would refuse.
func (Handler) Schema() txn.Schema { return schema }

// Validate tells all that is wrong.
func (s orderSchema) Validate(text stdjson.RawMessage) []txn.FieldError {
	if fits(text) {
		return nil
	}
	return s.Schema.Validate(text)
}

// fits is true only for what the schema allows.
func fits(text []byte) bool {
	var order Order
	if json.Unmarshal(text, &order) != nil || len(order.Items) == 0 {
		return false
	}
	if !isText(order.Customer, 1) || !isText(order.Reference, 0) || !isCurrency(order.Currency) {
		return false
	}
	for _, item := range order.Items {
		if !isText(item.SKU, 1) || item.Quantity < 1 || item.AmountMinor == nil || *item.AmountMinor < 0 {
			return false
		}
	}
	return true
}

func isText(s string, least int) bool {
	n := utf8.RuneCountInString(s)
	return n >= least && n <= 255 && strings.IndexByte(s, 0) < 0
}

func isCurrency(s string) bool {
	return len(s) == 3 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
