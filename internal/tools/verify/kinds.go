package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// anchorKind is the shipped kind whose transactions others refer to, because payments need an order.
const anchorKind = "order.create"

// anchorCount is the number of orders that are posted before the load begins. There are several, so that payments do
// not all lock the same one.
const anchorCount = 64

// shipped has the payloads of the kinds that ship with the service.
var shipped = map[string]KindLoad{
	anchorKind: {
		Table: "public.orders",
		Payload: `{"customer": "{{shard_key}}", "currency": "EUR", "reference": "{{id}}",` +
			` "items": [{"sku": "tea", "quantity": 2, "amount_minor": 450}, {"sku": "n-{{n}}", "quantity": 1, "amount_minor": {{n}}}]}`,
		// The customer has an order with that reference already.
		Rejected: `{"customer": "{{anchor_key}}", "currency": "EUR", "reference": "{{anchor}}",` +
			` "items": [{"sku": "tea", "quantity": 1, "amount_minor": {{n}}}]}`,
	},
	"payment.capture": {
		Table:    "public.payments",
		Payload:  `{"order_id": "{{anchor}}", "amount_minor": 1{{n}}, "currency": "EUR"}`,
		Rejected: `{"order_id": "{{id}}-is-no-order", "amount_minor": 1{{n}}, "currency": "EUR"}`,
	},
}

// Kind is a kind of the load: the service's description of it, and the templates.
type Kind struct {
	Name       string `json:"name"`
	Path       string `json:"path"`
	Topic      string `json:"topic"`
	Tag        string `json:"tag"`
	Ordered    bool   `json:"ordered"`
	BodyResult bool   `json:"body_result"` // the message's body is the transaction's result
	Weight     int    `json:"weight"`

	Payload     string `json:"payload"`
	Rejected    string `json:"rejected"`
	SelectorArg string `json:"selector_arg"`
	Table       string `json:"table"`

	payload, rejected, selectorArg *template
}

func (k *Kind) compile() error {
	for _, part := range []struct {
		name, text string
		into       **template
		required   bool
	}{
		{"payload", k.Payload, &k.payload, true}, {"rejected payload", k.Rejected, &k.rejected, false},
		{"selector_arg", k.SelectorArg, &k.selectorArg, false},
	} {
		if part.text == "" && !part.required {
			continue
		}
		var err error
		if *part.into, err = parseTemplate(part.text); err != nil {
			return fmt.Errorf("kind %s, template of its %s: %w", k.Name, part.name, err)
		}
	}
	return nil
}

func (k *Kind) needsAnchors() bool {
	return k.payload.needs(placeAnchor, placeAnchorKey) || k.rejected.needs(placeAnchor, placeAnchorKey)
}

// servedKind is one item of GET /v1/kinds. A service of another version may leave fields out.
type servedKind struct {
	Name    string  `json:"name"`
	Path    *string `json:"path"`
	Topic   string  `json:"topic"`
	Tag     *string `json:"tag"`
	Ordered bool    `json:"ordered"`
	Body    string  `json:"body"`
}

// chooseKinds joins the served kinds with the wanted ones, sorted by name. all adds the kinds that are not named. The
// second result names those that are left out because no payload can be made for them.
func chooseKinds(served []servedKind, wanted []KindLoad, all bool) (kinds []Kind, leftOut []string, err error) {
	byName, named := make(map[string]servedKind, len(served)), make(map[string]bool, len(wanted))
	for _, s := range served {
		byName[s.Name] = s
	}
	for _, w := range wanted {
		s, ok := byName[w.Name]
		if !ok {
			return nil, nil, fmt.Errorf("the service has no kind %q; it has %s", w.Name, namesOf(served))
		}
		k := join(s, w)
		if k.Payload == "" {
			return nil, nil, fmt.Errorf("kind %s needs a template of its payload", w.Name)
		}
		kinds, named[w.Name] = append(kinds, k), true
	}
	for _, s := range served {
		switch k := join(s, KindLoad{Name: s.Name, Weight: 1}); {
		case named[s.Name] || !all && len(wanted) > 0:
		case k.Payload == "":
			leftOut = append(leftOut, s.Name)
		default:
			kinds = append(kinds, k)
		}
	}
	for i := range kinds {
		if err := kinds[i].compile(); err != nil {
			return nil, nil, err
		}
	}
	slices.SortFunc(kinds, func(a, b Kind) int { return cmp.Compare(a.Name, b.Name) })
	return dropWithoutAnchors(kinds, leftOut, named)
}

func namesOf(served []servedKind) string {
	names := make([]string, len(served))
	for i, s := range served {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}

func join(s servedKind, w KindLoad) Kind {
	k := Kind{
		Name: s.Name, Topic: s.Topic, Ordered: s.Ordered || w.Ordered, BodyResult: s.Body == "result", Weight: w.Weight,
		Payload: w.Payload, Rejected: w.Rejected, SelectorArg: w.SelectorArg, Table: w.Table,
	}
	if s.Path != nil {
		k.Path = *s.Path
	}
	if s.Tag != nil {
		k.Tag = *s.Tag
	}
	if k.Payload == "" {
		k.Payload = shipped[s.Name].Payload
		if k.Rejected == "" {
			k.Rejected = shipped[s.Name].Rejected
		}
		if k.Table == "" {
			k.Table = shipped[s.Name].Table
		}
	}
	return k
}

// dropWithoutAnchors drops kinds that refer to orders when there are no orders.
func dropWithoutAnchors(kinds []Kind, leftOut []string, named map[string]bool) ([]Kind, []string, error) {
	hasAnchor := slices.ContainsFunc(kinds, func(k Kind) bool { return k.Name == anchorKind })
	var kept []Kind
	for _, k := range kinds {
		switch {
		case hasAnchor || !k.needsAnchors():
			kept = append(kept, k)
		case !named[k.Name]:
			leftOut = append(leftOut, k.Name)
		default:
			return nil, nil, fmt.Errorf("kind %s: its payload refers to an order ({{anchor}}), and the kind %s is not part of the load", k.Name, anchorKind)
		}
	}
	if len(kept) == 0 {
		return nil, nil, fmt.Errorf("no kind of the service has a payload to post: %s need templates", strings.Join(leftOut, ", "))
	}
	return kept, leftOut, nil
}
