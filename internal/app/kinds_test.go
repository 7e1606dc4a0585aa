package app

import (
	"testing"

	"github.com/txsvc/txsvc/internal/config"
	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

// Ordered kinds keep their queues unless the configuration says otherwise; what it says holds for the selector it is in.
func TestOnChangeIsSettled(t *testing.T) {
	for _, tt := range []struct {
		given   txn.OnChange
		ordered bool
		want    txn.OnChange
	}{
		{"", false, txn.OnChangeRemap},
		{"", true, txn.OnChangeRefuse},
		{txn.OnChangeRemap, true, txn.OnChangeRemap},
		{txn.OnChangeRefuse, false, txn.OnChangeRefuse},
	} {
		file := &config.File{Kinds: map[string]config.Kind{"k": {
			Kind:  txn.Kind{Name: "k", Destination: txn.Destination{Topic: "t"}, Options: txn.Options{Ordered: tt.ordered}},
			Local: config.Local{Handler: "orders"}, Selector: selector.Spec{Type: "hash", OnChange: tt.given},
		}}}
		code := Code{Handlers: map[string]Handler{"orders": {}}}
		kinds, _, err := code.kinds(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := kinds[0].OnChange; got != tt.want {
			t.Errorf("on_change %q, ordered %t: got %s, want %s", tt.given, tt.ordered, got, tt.want)
		}
	}
}
