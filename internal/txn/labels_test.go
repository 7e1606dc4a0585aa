package txn

import (
	"fmt"
	"strings"
	"testing"
)

// A mistake in a message of a batch is reported at its place, in the same words as for transactions.
func TestLabels(t *testing.T) {
	long := strings.Repeat("x", MaxPropertiesSize)
	for name, tc := range map[string]struct {
		labels Labels
		want   string
	}{
		"all right":          {Labels{"t", []string{"k"}, map[string]string{"größe": "ü\n🚚"}}, "[]"},
		"tag":                {Labels{Tag: "a||b"}, "[{/batch/3/tag must not contain ||, begin or end with a space, or be *: consumers could not subscribe to it}]"},
		"key":                {Labels{Keys: []string{"k", "a b"}}, "[{/batch/3/keys/1 must not be empty or contain spaces: RocketMQ separates keys with them}]"},
		"reserved property":  {Labels{Properties: map[string]string{"DELAY": "1"}}, "[{/batch/3/properties/DELAY the name DELAY is reserved: a field of the request sets it}]"},
		"empty property":     {Labels{Properties: map[string]string{"a/b": ""}}, "[{/batch/3/properties/a~1b must not be empty: RocketMQ drops properties without a value}]"},
		"separator":          {Labels{Properties: map[string]string{"a": "x\x01y"}}, "[{/batch/3/properties/a must not contain the characters U+0000, U+0001 or U+0002}]"},
		"too long":           {Labels{Properties: map[string]string{"a": long}}, "[{/batch/3/properties properties, keys, tag and shard key have 30725 bytes together, at most 30719 are allowed}]"},
		"too long, the keys": {Labels{Keys: []string{long}}, "[{/batch/3/keys properties, keys, tag and shard key have 30723 bytes together, at most 30719 are allowed}]"},
		"as long as can be":  {Labels{Properties: map[string]string{"a": long[6:]}}, "[]"},
	} {
		if got := fmt.Sprint(tc.labels.Check("/batch/3", "key")); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
	if got := fmt.Sprint(CheckShardKey("")); got != "[{/shard_key is required and must not be empty}]" {
		t.Errorf("no shard key: got %s", got)
	}
}
