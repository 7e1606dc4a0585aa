package selector

import (
	"unicode/utf16"
	"unicode/utf8"

	"github.com/txsvc/txsvc/internal/txn"
)

// hash picks by FNV-1a 64 over the bytes of the shard key.
type hash struct{ reasons reasons }

func (h *hash) Name() string { return TypeHash }

func (h *hash) Select(queues []txn.Queue, in txn.SelectorInput) (txn.Route, error) {
	n := len(queues)
	if n == 0 {
		return txn.Route{}, noQueue()
	}
	i := int(fnv1a64(in.ShardKey) % uint64(n))
	return txn.Route{Queue: queues[i], Selector: TypeHash, Reason: h.reasons.of(n, i)}, nil
}

// fnv1a64 is hash/fnv's New64a, without its allocations. The constants are the offset basis and the prime of
// draft-eastlake-fnv, section 5.
func fnv1a64(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h ^= uint64(s[i])
		h *= 1099511628211
	}
	return h
}

// javaHash picks what org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash picks when its argument is
// the shard key as a String, when it is given the list that the Java client makes: that sorts a topic's queues by broker
// name and id, too, unless the topic has an order configuration (orderTopicConf) or is a static topic.
type javaHash struct{ reasons reasons }

func (h *javaHash) Name() string { return TypeJavaHash }

func (h *javaHash) Select(queues []txn.Queue, in txn.SelectorInput) (txn.Route, error) {
	n := len(queues)
	if n == 0 {
		return txn.Route{}, noQueue()
	}
	if !utf8.ValidString(in.ShardKey) {
		return txn.Route{}, txn.Invalid(txn.FieldError{
			Pointer: "/shard_key", Message: "must be valid UTF-8: a Java string cannot hold it",
		})
	}
	i := javaIndex(hashCode(in.ShardKey), n)
	return txn.Route{Queue: queues[i], Selector: TypeJavaHash, Reason: h.reasons.of(n, i)}, nil
}

// javaIndex is the remainder with Java's sign, made positive: the remainder of a negative code counts from the same end
// as that of a positive one, so this is not a mathematical modulo.
func javaIndex(code int32, n int) int {
	i := int(code) % n
	if i < 0 {
		return -i
	}
	return i
}

// hashCode is java.lang.String.hashCode: over UTF-16 code units, a character beyond U+FFFF being two of them.
func hashCode(s string) int32 {
	var h int32
	for _, r := range s {
		if r > 0xFFFF {
			high, low := utf16.EncodeRune(r)
			h = 31*h + high
			r = low
		}
		h = 31*h + r
	}
	return h
}
