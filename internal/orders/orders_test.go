package orders

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/txsvc/txsvc"
	"github.com/txsvc/txsvc/internal/payload"
	"github.com/txsvc/txsvc/internal/txn"
)

func TestPlan(t *testing.T) {
	plan, err := Handler{}.Plan(txsvc.Input{ID: "tx-1", Payload: json.RawMessage(
		`{"customer":"acme","currency":"EUR","reference":"r-1","note":"for the consumers","items":[{"sku":"pen","quantity":3,"amount_minor":150},{"sku":"ink","quantity":1,"amount_minor":900}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	want := txsvc.Plan{
		Statements: []txsvc.Statement{
			{SQL: insertOrder, Args: []any{"tx-1", "acme", "EUR", int64(1350), "r-1"}},
			{SQL: insertItems, Args: []any{"tx-1", []string{"pen", "ink"}, []int64{3, 1}, []int64{150, 900}}},
		},
	}
	var result map[string]any
	if err := json.Unmarshal(plan.Result.(json.RawMessage), &result); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"order_id": "tx-1", "total_minor": 1350.0, "currency": "EUR", "items": 2.0}, result); diff != "" {
		t.Errorf("result (-want +got)\n%s", diff)
	}
	plan.Result = nil
	if diff := cmp.Diff(want, plan); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestPlanRefusesTotalsOutOfRange(t *testing.T) {
	for payload, pointer := range map[string]string{
		`{"items":[{"quantity":2,"amount_minor":9223372036854775807}]}`:                                 "/payload/items/0",
		`{"items":[{"quantity":1,"amount_minor":9223372036854775807},{"quantity":1,"amount_minor":1}]}`: "/payload/items/1",
	} {
		_, err := Handler{}.Plan(txsvc.Input{ID: "tx-1", Payload: json.RawMessage(payload)})
		e, ok := errors.AsType[*txn.Error](err)
		if !ok || e.Code != txn.CodeInvalidRequest || len(e.Fields) != 1 || e.Fields[0].Pointer != pointer {
			t.Errorf("%s: got %v, want invalid_request at %s", payload, err, pointer)
		}
	}
}

// addProduct agrees with arithmetic without limits.
func TestAddProduct(t *testing.T) {
	number := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{-2, -1, 0, 1, 2, math.MinInt64, math.MaxInt64, 1 << 31, -1 << 32}))
	rapid.Check(t, func(t *rapid.T) {
		total, quantity, amount := number.Draw(t, "total"), number.Draw(t, "quantity"), number.Draw(t, "amount")
		product := new(big.Int).Mul(big.NewInt(quantity), big.NewInt(amount))
		want := new(big.Int).Add(product, big.NewInt(total))
		got, ok := addProduct(total, quantity, amount)
		if fits := want.IsInt64() && product.IsInt64(); ok != fits || fits && got != want.Int64() {
			t.Fatal(fmt.Sprintf("%d + %d * %d: got %d, %t, want %s", total, quantity, amount, got, ok, want))
		}
	})
}

// What is parsed is what the schema allows, and ordinary orders are parsed.
func TestParseAgreesWithTheSchema(t *testing.T) {
	compiled, err := payload.CompileText(schema)
	if err != nil {
		t.Fatal(err)
	}
	texts := rapid.SampledFrom([]string{`"c"`, `"EUR"`, `""`, `null`, `7`, `"\u0000"`, `"EUr"`, `"EU\u00dc"`,
		`"` + strings.Repeat("\u00e9", 255) + `"`, `"` + strings.Repeat("x", 256) + `"`})
	numbers := rapid.SampledFrom([]string{`1`, `0`, `-1`, `-0`, `2.0`, `1.5`, `1e2`, `1e-2`, `100e-2`, `9223372036854775807`,
		`9223372036854775808`, `-9223372036854775808`, `"1"`, `null`, `true`})
	object := func(t *rapid.T, members map[string]*rapid.Generator[string]) string {
		var list []string
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if rapid.IntRange(0, 9).Draw(t, "left out") > 0 {
				list = append(list, fmt.Sprintf("%q:%s", name, members[name].Draw(t, name)))
			}
		}
		return "{" + strings.Join(list, ",") + "}"
	}
	item := rapid.Custom(func(t *rapid.T) string {
		return object(t, map[string]*rapid.Generator[string]{"sku": texts, "quantity": numbers, "amount_minor": numbers})
	})
	items := rapid.Custom(func(t *rapid.T) string {
		return "[" + strings.Join(rapid.SliceOfN(item, 0, 2).Draw(t, "items"), ",") + "]"
	})
	rapid.Check(t, func(t *rapid.T) {
		order := []byte(object(t, map[string]*rapid.Generator[string]{
			"customer": texts, "currency": rapid.OneOf(rapid.Just(`"EUR"`), texts), "reference": texts, "items": rapid.OneOf(items, items, texts),
		}))
		if _, ok := parse(order); !ok {
			return
		}
		if wrong := compiled.Validate(order); wrong != nil {
			t.Fatalf("%s is parsed, and the schema says %v", order, wrong)
		}
	})
	parsed, ok := parse([]byte(`{"customer":"c","currency":"EUR","items":[{"sku":"a","quantity":1,"amount_minor":0}]}`))
	if !ok {
		t.Fatal("an ordinary order is not parsed")
	}
	if plan, err := (Handler{}).Plan(txsvc.Input{ID: "tx-1", Parsed: parsed}); err != nil || len(plan.Statements) != 2 {
		t.Errorf("a parsed order is not planned: got %+v, %v", plan, err)
	}
}
