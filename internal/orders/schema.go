package orders

import (
	_ "embed"
	stdjson "encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/txsvc/txsvc"
)

//go:embed order.json
var schema []byte

// Schema is order.json. It refuses all that the tables' constraints would refuse, except a reference that is used already.
func (Handler) Schema() txsvc.Schema { return txsvc.Schema{JSON: schema, Parse: parse} }

// parse reads an order. It is true only for orders that the schema allows, because finding all that is wrong with others is
// the schema's part and costs ten times as much.
func parse(payload stdjson.RawMessage) (any, bool) {
	order := new(Order)
	if json.Unmarshal(payload, order) != nil || len(order.Items) == 0 {
		return nil, false
	}
	if !isText(order.Customer, 1) || !isText(order.Reference, 0) || !isCurrency(order.Currency) {
		return nil, false
	}
	for _, item := range order.Items {
		if !isText(item.SKU, 1) || item.Quantity < 1 || item.AmountMinor == nil || *item.AmountMinor < 0 {
			return nil, false
		}
	}
	return order, true
}

func isText(s string, least int) bool {
	n := utf8.RuneCountInString(s)
	return n >= least && n <= 255 && strings.IndexByte(s, 0) < 0
}

func isCurrency(s string) bool {
	return len(s) == 3 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
